"""`gpuctl templates`: what a run file can extend."""

from cli.plan import JsonOption


def templates(as_json: JsonOption = False) -> None:
    """List the run files that `extends: NAME` takes: gpuctl's own, and yours."""
    from cli.terminal import say, say_json
    from config.loading.templates import templates as all_templates

    found = all_templates()
    if as_json:
        say_json([vars(template) for template in found])
        return
    width = max((len(template.name) for template in found), default=0)
    for template in found:
        whose = f" ({template.path})" if template.is_users else ""
        say(f"{template.name:<{width}}  {template.type:<10}  {template.summary}{whose}".rstrip())

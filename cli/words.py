"""Where the options of gpuctl end and the command of somebody else begins."""

from collections.abc import Mapping, Sequence


def own_words(words: Sequence[str], options: Mapping[str, bool], arguments: float) -> int:
    """Return how many of the first words are gpuctl's own: its options and its arguments.

    `options` says of each option whether a value follows it. After `arguments` arguments the first
    word that is no option of ours begins the rest; so does `--`, wherever it is.
    """
    place = seen = 0
    while place < len(words) and words[place] != "--":
        word = words[place]
        name = word.partition("=")[0]
        is_argument = not word.startswith("-") or word == "-"
        if seen >= arguments and (is_argument or name not in options):
            break
        seen += is_argument
        place += 2 if options.get(word) else 1
    return min(place, len(words))


def named_lab(word: str) -> str:
    """Return `--lab=NAME` as the option `--lab-name=NAME`; any other word as it is."""
    return f"--lab-name={word[6:]}" if word.startswith("--lab=") else word

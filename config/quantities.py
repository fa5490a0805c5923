"""Amounts as people read them: dollars, bytes, seconds."""

from datetime import UTC, datetime


def money(amount: float | None) -> str:
    """Return `$43.92`, or `unknown`."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def price(amount: float | None) -> str:
    """Return a price per hour like `money`, but with more digits for cents: `$0.045`."""
    if amount is None or amount >= 1:
        return money(amount)
    return f"${amount:.3f}"


def size(amount: int) -> str:
    """Return bytes as `12 KiB`, `3.4 MiB`, `10.0 GiB`."""
    if amount < 1 << 20:
        return f"{-(-amount >> 10)} KiB"
    unit, name = (1 << 30, "GiB") if amount >= 1 << 30 else (1 << 20, "MiB")
    return f"{amount / unit:.1f} {name}"


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: `1 region`, `2 regions`, `2 processes`."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def elapsed(seconds: float) -> str:
    """Return seconds as `1m 05s`, `12s`, `2h 03m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def age(moment: datetime) -> str:
    """Return how long ago the moment was: `12s ago`."""
    return f"{elapsed(max(0.0, (datetime.now(UTC) - moment).total_seconds()))} ago"

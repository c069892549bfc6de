"""Formats numbers, times and parts of sentences for people, on plots, pages and terminals. Imports
nothing.
"""

from __future__ import annotations


def short(value: float) -> str:
    """12000 -> 12k, 2500000 -> 2.5M, 0.00025 -> 2.5e−4, with typographic minus signs."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}".replace("-", "−")
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
    return f"{value:.6g}".replace("-", "−")


def number(value: float) -> str:
    """Four significant digits, for returns in tables: 487.3, −92.15, 12 340."""
    text = f"{value:,.0f}".replace(",", "\u2009") if abs(value) >= 10_000 else f"{value:.4g}"
    return text.replace("-", "−")


def clock(seconds: float) -> str:
    """`0:31`, `12:05`, `3:00:00`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """`4.2 s`, `40 s`, `2 min 5 s`, `3 h 12 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def hours(value: float) -> str:
    """Hours with their fraction, for costs in tables: 0.25, 12.5, 1 204; `under 0.01` for less."""
    if value >= 1:
        return number(value)
    return "under 0.01" if 0 < value < 0.01 else f"{value:.2f}"


def byte_size(count: int) -> str:
    """`12 B`, `3.4 kB`, `2.1 GB`."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def counted(count: int, noun: str) -> str:
    """`1 run`, `3 runs`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def if_any(before: str, text: str | None, after: str = "") -> str:
    """The text with what goes before and after it in a sentence; empty if there is no text."""
    if not text:
        return ""
    return f"{before}{text}{after}"

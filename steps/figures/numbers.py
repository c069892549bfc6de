"""Numbers as people read them, on plots and pages; imports nothing."""

from __future__ import annotations


def short(value: float) -> str:
    """12000 -> 12k, 2500000 -> 2.5M, 0.00025 -> 2.5e−4; minus signs are those of typography."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.6g}{letter}".replace("-", "−")
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.3e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}".replace("-", "−")
    return f"{value:.6g}".replace("-", "−")


def number(value: float) -> str:
    """Four significant digits, as a table shows a return: 487.3, −92.15, 12 340."""
    text = f"{value:,.0f}".replace(",", "\u2009") if abs(value) >= 10_000 else f"{value:.4g}"
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """0.42 s, 18.3 s, 2 min 05 s, 3 h 12 min."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

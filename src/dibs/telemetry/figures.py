"""The figures of a daemon, for both Prometheus and OTLP."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]


class Figure(NamedTuple):
    """A metric, with its Prometheus name.

    kind: `counter`, which only rises during the life of the process, or `gauge`
    numbers: the values, by their labels
    """

    name: str
    kind: str
    says: str
    numbers: dict[Labels, int]

    @property
    def otel_name(self) -> str:
        """Its name in OTLP, which Prometheus backends convert back to `name`."""
        return self.name.removesuffix("_total").replace("_", ".")


def one(name: str, kind: str, says: str, number: int) -> Figure:
    """A metric with one value."""
    return Figure(name, kind, says, {(): number})


def prometheus(figures: list[Figure]) -> str:
    """The figures in the text format of Prometheus."""
    return "".join(
        f"# HELP {figure.name} {figure.says}\n# TYPE {figure.name} {figure.kind}\n"
        + "".join(
            f"{figure.name}{written(told)} {number}\n" for told, number in figure.numbers.items()
        )
        for figure in figures
    )


def written(labels: Labels) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""

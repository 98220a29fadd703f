"""State means what it meant when it was written: a driver whose operator says something else is refused it."""

from collections.abc import Mapping

import msgspec
import pyspark

from epochal.protocol.documents import Manifest, OperatorState
from epochal.runtime.dataflow.operator import EXPRESSIONS, BoundOperator

SPARK = "spark"
"""The part of a definition that names the version of Spark whose words the others are in."""


Definitions = Mapping[str, Mapping[str, str] | None]
"""By operator."""


def definition_of(operator: BoundOperator) -> dict[str, str] | None:
    """What an operator's state means, and which Spark has said it; None if it does not tell."""
    told = operator.state_definition()
    return {**told, SPARK: pyspark.__version__} if told else None


def changed(stored: Mapping[str, str] | None, now: Mapping[str, str] | None) -> dict[str, tuple[str, str]]:
    """The parts that are another now, as they were and as they are. What did not tell, or does not, has none."""
    if stored is None or now is None:
        return {}
    # Another version of Spark may show the same expression in another way.
    left_out = {SPARK} if stored.get(SPARK) == now.get(SPARK) else {SPARK, *EXPRESSIONS}
    parts = [part for part in (*stored, *(part for part in now if part not in stored)) if part not in left_out]
    return {
        part: (stored.get(part, "none"), now.get(part, "none"))
        for part in parts
        if stored.get(part, "none") != now.get(part, "none")
    }


def without_changed(manifest: Manifest, definitions: Definitions) -> Manifest:
    """The manifest without state that means something else now: of that only the watermark still holds."""
    operators = {
        name: OperatorState(watermark=state.watermark) if changed(state.definition, definitions.get(name)) else state
        for name, state in manifest.operators.items()
    }
    return msgspec.structs.replace(manifest, operators=operators)


def refusal(manifest: Manifest, definitions: Definitions) -> str | None:
    """Why the state of a manifest cannot be taken on by these operators, if it cannot."""
    for operator, state in manifest.operators.items():
        has_state = any(table.runs for table in state.tables.values())
        if has_state and (parts := changed(state.definition, definitions.get(operator))):
            said = "; ".join(
                f"{part}: {before} when it was written, {now} now" for part, (before, now) in parts.items()
            )
            return (
                f"epoch {manifest.epoch} has state of operator {operator!r}, which is defined in another way now "
                f"({said}): give the changed operator another name, or set allowEmptyStart to drop its state"
            )
    return None

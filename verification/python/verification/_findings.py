"""The parts of a report from the results of verification/verify."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from weft.formats import Layer, Source
from weft.verification import _changes, _sides
from weft.verification._results import Change, Diagnosis, Place, Side, Spot, Track, Untried
from weft.verification._untried import together
from weft.verification._where import Where


def _direction_name(layer: Layer, direction: int) -> str:
    if direction > 1:
        return "both"
    return "reverse" if layer.directions[direction].reverse else "forward"


def tracks_of(raw: list[dict[str, Any]], layers: Sequence[Layer], start: int, exchanged: bool = False) -> list[Track]:
    tracks = []
    for each in raw:
        if all(math.isnan(value) for value in each["defect"]):
            continue  # nothing of the layer was recorded
        layer = layers[each["layer"]]
        direction = _direction_name(layer, each["direction"])
        place = _place(each["first"], layer, direction, start, exchanged) if each["first"] else None
        tracks.append(
            Track(
                layer=start + each["layer"],
                layer_name=layer.label,
                kind=layer.kind,
                direction=direction,
                difference=_numbers(each["drift"]),
                defect=_numbers(each["defect"]),
                bound=_numbers(each["bound"]),
                first=place,
                largest=_spot(each),
            )
        )
    return tracks


def _spot(raw: dict[str, Any]) -> Spot | None:
    if raw["largest"] is None:
        return None
    step, row, unit = raw["largest"]
    return Spot(step, row, unit, raw["drift"][step])


def _place(raw: dict[str, Any], layer: Layer, direction: str, start: int, exchanged: bool) -> Place:
    values = (raw["layers"], raw["recorded"])
    reference, candidate = values[::-1] if exchanged else values
    return Place(
        layer=start + raw["layer"],
        layer_name=layer.label,
        direction=direction,
        step=raw["step"],
        turn=raw["turn"],
        quantity=raw["quantity"],
        row=raw["row"],
        unit=raw["unit"],
        reference=reference,
        candidate=candidate,
        bound=raw["bound"],
    )


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def first_of(tracks: Sequence[Track]) -> Place | None:
    """The first of the tracks' places: by the turn of the place's direction, then by layer."""
    places = [track.first for track in tracks if track.first is not None]
    return min(places, key=lambda place: (place.turn, place.layer), default=None)


def diagnoses_of(raw: list[dict[str, Any]], layers: Sequence[Layer], start: int, side: str) -> list[Diagnosis]:
    """`side`: the side whose layers are to be changed."""
    who = "the candidate" if side == "reference" else "the reference"
    result = []
    for each in raw:
        index = each["layer"]
        changed = list(range(len(layers))) if index < 0 else [index]
        scope = "all layers" if index < 0 else f"layer {start + index}"
        if each["direction"] >= 0:
            scope += f", {_direction_name(layers[changed[0]], each['direction'])}"
        sets = [
            _changes_of(changes, who, Where(layers, changed, each["direction"]))
            for changes in (each["changes"], *each["also"])
        ]
        untried = [Untried(*sets_left) for sets_left in each["untried"]]
        result.append(Diagnosis(scope, sets[0], side, _changes.sentence(sets[0], who), sets[1:], untried))
    return result


def _changes_of(changes: Sequence[tuple[str, str]], who: str, where: Where) -> list[Change]:
    """Changes in words. Where several are options of one constructor, each gives the constructor with the options
    before it."""
    return [_changes.change(name, detail, who, where) for name, detail in changes]


def merged(diagnoses: list[Diagnosis], models: dict[str, Sequence[Layer]]) -> list[Diagnosis]:
    """One diagnosis for all layers if all layers have the same. `models`: each side's layers."""
    layers = max(len(model) for model in models.values())
    alike = len({(layer.kind, layer.hidden_size) for model in models.values() for layer in model}) == 1
    whole = alike and len(diagnoses) == layers > 1 and all(", " not in each.scope for each in diagnoses)
    keys = {(each.side, tuple((change.name, change.detail) for change in each.changes)) for each in diagnoses}
    if whole and len(keys) == 1:
        untried = together(*(each.untried for each in diagnoses))
        first = dataclasses.replace(diagnoses[0], untried=untried)
        return [_of_all_layers(first, models[first.side])]
    if layers == 1:  # "all layers" of one layer
        return [dataclasses.replace(each, scope=each.scope.replace("all layers", "layer 0")) for each in diagnoses]
    return diagnoses


def _of_all_layers(diagnosis: Diagnosis, layers: Sequence[Layer]) -> Diagnosis:
    """A diagnosis of the first layer that holds for each layer, with code for all of them."""
    who = "the candidate" if diagnosis.side == "reference" else "the reference"

    def widened(changes: Sequence[Change]) -> list[Change]:
        where = Where(layers, range(len(layers)))
        return [
            dataclasses.replace(
                change, configuration=_changes.change(change.name, change.detail, who, where).configuration
            )
            if not change.configuration.startswith("# nothing")
            else change
            for change in changes
        ]

    also = [widened(changes) for changes in diagnosis.also]
    return dataclasses.replace(diagnosis, scope="all layers", changes=widened(diagnosis.changes), also=also)


def side_of(source: Source, layers: int = 1) -> Side:
    """`layers`: the layers of the other side; a trace records only the last of them."""
    notes = list(source.notes)
    if source.trace is not None:
        trace = source.trace
        shapes = f"x {list(trace.x.shape)}, y {list(trace.y.shape)}"
        extra = [name for name in ("h0", "c0", "hn", "cn") if getattr(trace, name) is not None] + sorted(trace.gates)
        of = "one layer" if layers == 1 else f"the last of {layers} layers"
        lines, dtype = [", ".join([f"trace of {of}: {shapes}", *extra])], trace.y.dtype
        if layers > 1:
            notes.append(f"what differs in a layer before the last shows in layer {layers - 1}, which is recorded")
    else:
        lines, dtype = [_sides.describe(layer) for layer in source.layers], _sides.dtype_of(source.layers)
    return Side(source.path, source.format, str(dtype).removeprefix("torch."), lines, notes)

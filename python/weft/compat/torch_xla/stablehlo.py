"""`torch_xla.stablehlo`: weft.stablehlo writes programs as StableHLO."""

from __future__ import annotations

from weft.compat.torch_xla._missing import missing

_TEXT = "weft.stablehlo(module, *example).text is a module's program as StableHLO text"
exported_program_to_stablehlo = missing("exported_program_to_stablehlo", _TEXT)
save_as_stablehlo = missing("save_as_stablehlo", _TEXT)
save_torch_model_as_stablehlo = missing("save_torch_model_as_stablehlo", _TEXT)
StableHLOExportOptions = missing("StableHLOExportOptions", _TEXT)
StableHLOGraphModule = missing("StableHLOGraphModule", "weft.stablehlo(module, *example).compile() runs one by jaxlib")

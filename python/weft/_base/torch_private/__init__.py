"""PyTorch's private names that Weft uses: names of which a part begins with an underscore.

What `import torch` doesn't load by itself, or may stop loading, is in `LAZY` and looked up when it is first asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._VF
import torch.utils._device
from torch import Tensor

if TYPE_CHECKING:  # the types of the names in LAZY
    import torch._logging._internal
    import torch.distributed.fsdp._common_utils
    import torch.fx.graph
    import torch.utils._python_dispatch
    from torch._decomp import core_aten_decompositions as core_aten_decompositions
    from torch._decomp import decomposition_table as decomposition_table
    from torch._decomp import get_decompositions as get_decompositions
    from torch._dynamo.backends.common import aot_autograd as aot_autograd
    from torch._dynamo.output_graph import OutputGraph as OutputGraph
    from torch._dynamo.pgo import reset_code_state as reset_code_state
    from torch._dynamo.symbolic_convert import InstructionTranslator as InstructionTranslator
    from torch._functorch.autograd_function import autograd_function_apply as autograd_function_apply
    from torch._functorch.partitioners import default_partition as default_partition
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as temporarily_clear_interpreter_stack
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._higher_order_ops.utils import first_slice_copy as first_slice_copy
    from torch._inductor import config, metrics
    from torch._logging._internal import trace_log as trace_log
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode

    BoxedCodeGen = torch.fx.graph._BoxedCodeGen
    FSDPDeviceHandle: Any = torch.distributed.fsdp._common_utils._FSDPDeviceHandle
    disable_current_modes = torch.utils._python_dispatch._disable_current_modes
    inductor_config = config
    inductor_metrics = metrics
    is_torch_handler: Callable[[Any], bool] = torch._logging._internal._is_torch_handler
    # Dynamo declares few types for the names below.
    InstructionTranslatorBase: Any
    LazyVariableTracker: Any
    ListIteratorVariable: Any
    RangeIteratorVariable: Any
    TorchHigherOrderOperatorVariable: Any
    call_function_and_unflatten_output: Any
    discard_graph_changes: Any
    dynamo_higher_order: Any
    hop_name_to_variable_class: dict[str, Any]
    make_attr: Any
    make_inlined: Any
    speculate_subgraph: Any
    unpack_iterable: Any

# Trees, as torch.export's functions for trees use them too.
pytree = torch.utils._pytree

# Operators as objects, and the keys of their kernels.
OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket
HigherOrderOperator = torch._ops.HigherOrderOperator
DispatchKey = torch._C.DispatchKey
TransformType: Any = torch._C._functorch.TransformType
parse_dispatch_key = torch._C._parse_dispatch_key

# What is active in this thread: modes of functions and of operators, torch.func's transforms, torch.jit.trace.
# torch.overrides and similar modules can enter these modes, but not list them.
len_torch_function_stack = torch._C._len_torch_function_stack
pop_torch_function_stack = torch._C._pop_torch_function_stack
push_on_torch_function_stack = torch._C._push_on_torch_function_stack
DisableTorchFunction = torch._C.DisableTorchFunction
DeviceContext = torch.utils._device.DeviceContext
len_torch_dispatch_stack = torch._C._len_torch_dispatch_stack
is_dispatch_key_included = torch._C._dispatch_tls_is_dispatch_key_included
peek_interpreter_stack = torch._C._functorch.peek_interpreter_stack
is_functorch_wrapped_tensor = torch._C._functorch.is_functorch_wrapped_tensor
get_unwrapped = torch._C._functorch.get_unwrapped
unwrap_batched: Any = torch._C._functorch._unwrap_batched
add_batch_dim: Any = torch._C._functorch._add_batch_dim
are_functorch_transforms_active = torch._C._are_functorch_transforms_active
is_functional_tensor = torch._is_functional_tensor
get_tracing_state = torch._C._get_tracing_state
set_tracing_state = torch._C._set_tracing_state

# Whether Dynamo may compile frames: in this thread, and frames of one function.
#: The module of what torch.compile makes, which is imported late.
EVAL_FRAME = "torch._dynamo.eval_frame"
set_eval_frame: Any = torch._C._dynamo.eval_frame.set_eval_frame
set_code_exec_strategy = torch._C._dynamo.eval_frame.set_code_exec_strategy
FrameAction = torch._C._dynamo.eval_frame._FrameAction
FrameExecStrategy = torch._C._dynamo.eval_frame._FrameExecStrategy

# torch.autograd.Function and its parts, which Weft replaces within a recording.
SingleLevelFunction = torch.autograd.function._SingleLevelFunction
is_setup_context_defined: Callable[[Any], bool] = torch.autograd.function._is_setup_context_defined
BackwardHookFunction = torch.nn.modules._functions.BackwardHookFunction
SavedTensor: Any = torch._C._autograd.SavedTensor

# The function by which Dynamo's graphs switch autograd off and on.
set_grad_enabled = torch._C._set_grad_enabled

# The module where PyTorch's modules look up the functions of recurrent layers, and the module that defines them.
VF: Any = torch._VF
VariableFunctions = torch._C._VariableFunctions

# PyTorch's place for a device that another package adds (PrivateUse1).
get_accelerator = torch._C._get_accelerator
get_privateuse1_backend_name = torch._C._get_privateuse1_backend_name
register_device_module = torch._register_device_module

# The type in which torch.compile passes its arguments to Dynamo.
TorchCompileWrapper: Any = torch._TorchCompileWrapper
TorchCompileInductorWrapper: Any = torch._TorchCompileInductorWrapper

# Stands in a module of settings for a value that isn't there.
UNSET_SENTINEL = torch.utils._config_module._UNSET_SENTINEL

#: Looked up on first use: "module:name", or "module:" for a module itself.
LAZY = {
    # What AOTAutograd makes of a graph.
    "aot_autograd": "torch._dynamo.backends.common:aot_autograd",
    "default_partition": "torch._functorch.partitioners:default_partition",
    "BoxedCodeGen": "torch.fx.graph:_BoxedCodeGen",
    # What Dynamo makes of a torch.autograd.Function.
    "autograd_function_apply": "torch._functorch.autograd_function:autograd_function_apply",
    # Tensors without data, and modes taken away for a while.
    "FakeTensor": "torch._subclasses.fake_tensor:FakeTensor",
    "FakeTensorMode": "torch._subclasses.fake_tensor:FakeTensorMode",
    "FunctionalTensorMode": "torch._subclasses.functional_tensor:FunctionalTensorMode",
    "detect_fake_mode": "torch._guards:detect_fake_mode",
    "disable_current_modes": "torch.utils._python_dispatch:_disable_current_modes",
    "temporarily_clear_interpreter_stack": "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack",
    # Decompositions; torch.export has only the table of core ATen, not one for some operators or for all.
    "core_aten_decompositions": "torch._decomp:core_aten_decompositions",
    "decomposition_table": "torch._decomp:decomposition_table",
    "get_decompositions": "torch._decomp:get_decompositions",
    # What Dynamo makes of control flow operators. It has no public way to add an operator.
    "InstructionTranslator": "torch._dynamo.symbolic_convert:InstructionTranslator",
    "InstructionTranslatorBase": "torch._dynamo.symbolic_convert:InstructionTranslatorBase",
    "LazyVariableTracker": "torch._dynamo.variables.higher_order_ops:LazyVariableTracker",
    "ListIteratorVariable": "torch._dynamo.variables.lists:ListIteratorVariable",
    "RangeIteratorVariable": "torch._dynamo.variables.lists:RangeIteratorVariable",
    "TorchHigherOrderOperatorVariable": "torch._dynamo.variables.higher_order_ops:TorchHigherOrderOperatorVariable",
    "call_function_and_unflatten_output": (
        "torch._dynamo.variables.higher_order_ops:_call_function_and_unflatten_output"
    ),
    "dynamo_higher_order": "torch._dynamo.variables.higher_order_ops:",
    "discard_graph_changes": "torch._dynamo.variables.higher_order_ops:discard_graph_changes",
    "first_slice_copy": "torch._higher_order_ops.utils:first_slice_copy",
    "hop_name_to_variable_class": "torch._dynamo.variables.higher_order_ops:_hop_name_to_variable_class",
    "make_attr": "torch._dynamo.variables.higher_order_ops:make_attr",
    "make_inlined": "torch._dynamo.variables.higher_order_ops:_make_inlined",
    "speculate_subgraph": "torch._dynamo.variables.higher_order_ops:speculate_subgraph",
    "unpack_iterable": "torch._dynamo.variables.higher_order_ops:unpack_iterable",
    # The parts of the compiler that weft.explain watches.
    "OutputGraph": "torch._dynamo.output_graph:OutputGraph",
    "inductor_config": "torch._inductor.config:",
    "inductor_metrics": "torch._inductor.metrics:",
    "is_torch_handler": "torch._logging._internal:_is_torch_handler",
    "reset_code_state": "torch._dynamo.pgo:reset_code_state",
    "trace_log": "torch._logging._internal:trace_log",
    # Where the older FSDP looks for a device.
    "FSDPDeviceHandle": "torch.distributed.fsdp._common_utils:_FSDPDeviceHandle",
}

if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        if name not in LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = LAZY[name].partition(":")
        found = importlib.import_module(module)
        globals()[name] = found = getattr(found, attribute) if attribute else found
        return found


# Modules that hooks wait for, by name: most programs never import them.
DECOMPOSITIONS = "torch._decomp.decompositions"
DYNAMO_OPENXLA = "torch._dynamo.backends.torchxla"
DYNAMO_HIGHER_ORDER = "torch._dynamo.variables.higher_order_ops"
#: The module of torch.onnx.export with its table of operators, which is built again for each export.
ONNX_REGISTRATION = "torch.onnx._internal.exporter._registration"
FSDP_COMMON = "torch.distributed.fsdp._common_utils"
FULLY_SHARD_INIT = "torch.distributed.fsdp._fully_shard._fsdp_init"

#: Loggers of torch.compile, and its modules that warn. `torch` itself is not among them, since its operations also warn
#: without a compiler.
COMPILER = (
    "torch._dynamo",
    "torch._inductor",
    "torch._functorch",
    "torch._higher_order_ops",
    "torch._subclasses",
    "torch._logging",
    "torch._guards",
    "torch.fx",
)

#: Prefixes of the names of PyTorch's files that define the methods of tensors, and of files that format tensors.
METHODS_FILES = tuple(f"{path}/_tensor" for path in torch.__path__)
PRINTING_FILES = tuple(f"{path}/_tensor_str.py" for path in torch.__path__)
#: The frame in which a thread waits for autograd: its file and its function.
ENGINE_FRAME = f"{torch.__path__[0]}/autograd/graph.py", "_engine_run_backward"

#: The functions that a pickle of tensors may call, with their numbers of arguments, in files of this release and of
#: older ones.
REBUILDING = {
    "torch._utils._rebuild_parameter": range(3, 4),
    "torch._utils._rebuild_parameter_with_state": range(4, 5),
    "torch._tensor._rebuild_from_type_v2": range(4, 5),
    "torch._utils._rebuild_tensor": range(4, 5),
    "torch._utils._rebuild_tensor_v2": range(6, 8),
    "torch._utils._rebuild_tensor_v3": range(7, 9),
    "torch.serialization._get_layout": range(1, 2),
}
REBUILD_TENSOR = "torch._utils._rebuild_tensor"  #: how the names of those functions begin that take a storage


def in_forward_mode() -> bool:
    """Whether tensors in this thread may have tangents (torch.autograd.forward_ad, torch.func.jvp)."""
    return bool(torch.autograd.forward_ad._current_level >= 0)


def replace_engine_run_backward(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces the function that every backward goes through by `make(function)`."""
    package: Any = torch.autograd
    package.graph._engine_run_backward = package._engine_run_backward = make(package.graph._engine_run_backward)


def replace_accelerator_functions(make: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces each function by which Python asks PyTorch for the machine's accelerator by `make(name, function)`:
    `_get_accelerator`, and torch.accelerator's `_accelerator_...`."""
    for name in dir(torch._C):
        if name == "_get_accelerator" or name.startswith("_accelerator_"):
            setattr(torch._C, name, make(name, getattr(torch._C, name)))


def replace_device_of_data_parallel(make: Callable[[Callable[[], str | None]], Callable[[], str | None]]) -> None:
    """Replaces the function by which nn.DataParallel finds its kind of device by `make(function)`."""
    module: Any = sys.modules["torch.nn.parallel.data_parallel"]  # its name in the package is that of a function
    module._get_available_device_type = make(module._get_available_device_type)


def replace_autograd_would_have_decomposed(make: Callable[[Callable[..., bool]], Callable[..., bool]]) -> None:
    """Replaces the function by which tracing below autograd decides whether to decompose an operator by its composite,
    by `make(function)`."""
    for name in ("torch._subclasses.functional_tensor", "torch.fx.experimental.proxy_tensor"):
        module: Any = importlib.import_module(name)
        module.autograd_would_have_decomposed = make(module.autograd_would_have_decomposed)


def replace_tensor_str(make: Callable[[Callable[..., str]], Callable[..., str]]) -> None:
    """Replaces the function that formats a tensor's numbers for `repr` by `make(function)`."""
    module: Any = torch._tensor_str
    module._tensor_str = make(module._tensor_str)


def hooks_of_checkpoints() -> tuple[type, ...]:
    """The hooks on saved tensors that torch.utils.checkpoint installs."""
    from torch.utils import checkpoint

    return checkpoint._checkpoint_hook, checkpoint._recomputation_hook


def untraced_module_call() -> Any:
    """`nn.Module.__call__` where torch.fx doesn't watch it; None where torch.fx was never imported."""
    traced = sys.modules.get("torch.fx._symbolic_trace")
    return None if traced is None else traced._orig_module_call


def modules_are_traced() -> bool:
    """Whether torch.fx watches the calls of modules."""
    traced = sys.modules.get("torch.fx._symbolic_trace")
    return traced is not None and torch.nn.Module.__call__ is not traced._orig_module_call


def is_fake(tensor: Tensor) -> bool:
    """Whether the tensor is a FakeTensor. Doesn't import the module that defines these."""
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    return fake is not None and isinstance(tensor, fake.FakeTensor)


def is_functional(tensor: Tensor) -> bool:
    """Whether the tensor is a FunctionalTensor. Doesn't import the module that defines these."""
    functional = sys.modules.get("torch._subclasses.functional_tensor")
    return functional is not None and isinstance(tensor, functional.FunctionalTensor)


def forget_fake_dispatch() -> None:
    """Empties the cache of operators' results on FakeTensors, unless it is empty."""
    if (fake := sys.modules.get("torch._subclasses.fake_tensor")) is not None:
        fake.FakeTensorMode.cache_clear()

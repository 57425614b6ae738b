"""The private attributes of PyTorch's objects that Weft uses where the objects are at hand. Nothing reads the table at
run time: scripts/check_private_names.py does, and a test that looks for each in the installed release."""

from __future__ import annotations

#: The class that has the attributes, or the module that looks for them, and their names. Some are private although they
#: have no underscore.
ATTRIBUTES = (
    ("torch:Tensor", "_use_count"),
    ("torch:Tensor", "_version"),
    ("torch:UntypedStorage", "_cdata"),
    ("torch._VF", "_pack_padded_sequence"),
    ("torch._VF", "_pad_packed_sequence"),
    ("torch.nn:Module", "_apply"),
    ("torch.nn:Module", "_buffers"),
    ("torch.nn:Module", "_modules"),
    ("torch.nn:Module", "_parameters"),
    ("torch.nn:RNNBase", "_all_weights"),
    ("torch.nn:RNNBase", "_flat_weight_refs"),
    ("torch.nn:RNNBase", "_flat_weights"),
    ("torch.nn:RNNBase", "_init_flat_weights"),
    ("torch.fx:Graph", "_root"),
    ("torch._ops:OpOverload", "_dispatch_cache"),
    ("torch._ops:OpOverload", "_op_dk"),
    ("torch._ops:OpOverload", "_overloadname"),
    ("torch._ops:OpOverload", "_schema"),
    ("torch._ops:OpOverload", "py_kernels"),
    ("torch._ops:HigherOrderOperator", "_dispatch_cache"),
    ("torch._ops:HigherOrderOperator", "fallthrough"),
    ("torch._ops:HigherOrderOperator", "functorch_table"),
    ("torch._ops:HigherOrderOperator", "py_kernels"),
    ("torch._ops:HigherOrderOperator", "python_key_table"),
    ("torch.utils._config_module:ConfigModule", "_config"),
    ("torch.utils._config_module:ConfigModule", "_hash_dirty_var"),
    ("torch.utils._config_module:ConfigModule", "_mark_get_dict_dirty"),
    ("torch.utils._config_module:_ConfigEntry", "default"),
    ("torch.utils._config_module:_ConfigEntry", "env_value_default"),
    ("torch.utils._config_module:_ConfigEntry", "user_override"),
    # On functions, where AOTAutograd and Dynamo look for them.
    ("torch._functorch._aot_autograd.utils", "_boxed_call"),
    ("torch._dynamo.decorators", "_dynamo_marked_constant"),
    ("torch._dynamo.eval_frame", "_callback_from_stance"),
    ("torch._dynamo.eval_frame", "_torchdynamo_disable"),
    ("torch._dynamo.eval_frame", "_torchdynamo_orig_callable"),
    ("torch._dynamo.eval_frame:OptimizedModule", "_orig_mod"),
    # Of Dynamo's variables and the objects that belong to them.
    ("torch._dynamo.variables.higher_order_ops:TorchHigherOrderOperatorVariable", "_ALLOW_FALLBACK_TO_EAGER"),
    ("torch._dynamo.variables.higher_order_ops:TorchHigherOrderOperatorVariable", "_HOP_NAME"),
    ("torch._dynamo.variables.higher_order_ops:TorchHigherOrderOperatorVariable", "_call_function"),
    ("torch._dynamo.output_graph:OutputGraph", "dynamo_compile_id"),
    ("torch._dynamo.output_graph:OutputGraph", "install_subgraph"),
    ("torch._dynamo.output_graph:OutputGraph", "nn_modules"),
    ("torch._dynamo.output_graph:OutputGraph", "side_effects"),
    ("torch._dynamo.output_graph:OutputGraph", "variable_tracker_cache"),
    ("torch._dynamo.side_effects:SideEffects", "id_to_variable"),
    ("torch.distributed.fsdp._fully_shard._fsdp_init", "init_device_mesh"),
)

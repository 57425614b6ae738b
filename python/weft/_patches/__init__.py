"""Weft's changes of PyTorch's process-wide state, and how they are taken back.

- `aten::gru`, `lstm`, `rnn_tanh` and `rnn_relu` (the forms `input` and `data`, for packed sequences) and the single
  steps `gru_cell` and so on get kernels for CPU and AutogradCPU (`_C` registers them). They stay registered; disabled,
  they call what PyTorch would have called.
- While tracing, PyTorch decomposes these ops in Python, step by step; those decompositions ask Weft first.
- `torch._dynamo.config.allow_rnn` defaults to True: Dynamo then traces recurrent modules instead of refusing them.
- `torch.compiler.config.cache_key_tag` gets a suffix: PyTorch's compile cache on disk is keyed by the graph before our
  kernels are in it, so without the suffix it would mix runs with and without Weft.
- `torch._VF`, where PyTorch's modules look for these ops, has them as attributes of its own, which are found sooner:
  `variable_functions`.
- PyTorch's control flow operators (`torch._higher_order_ops.scan` and its kin) ask Weft first: `higher_order_kernels`.
- While a step is recorded, functions of torch.compile's run as they are written: `compiled_functions`.
- Dynamo knows how to write a `weft.scan` as PyTorch's: `weft._control.under_dynamo`.
- Dynamo's operators under torch.vmap find the memory of what its tensors wrap, and scan takes steps that give a carry
  back as y: `weft._control.under_dynamo`. Once the backend is loaded, it is told of the loops that Dynamo gives up:
  `weft._dynamo.rolling.given_up`.
- `torch.autograd.Function.apply` asks whether a recording is under way, and since PyTorch 2.14 so does the context that
  a call makes: `weft._capture.autograd_function`. From the first recording on, backwards and hooks within it ask too:
  `weft._capture.autograd_calls`.
- Where PyTorch has no accelerator, the device `weft` takes its place for a device from outside (PrivateUse1), and
  `torch.weft` is its module: `weft.device`. Once a tensor was made there, backwards run on the thread that asks for
  them: `weft._device.backward`. `weft.disable()` leaves it. torch.distributed, which would exchange tensors of the
  accelerator, passes it by: `weft._device.collectives`. torch.accelerator has none until the device is in use, and
  nn.DataParallel passes it by: `weft._device.accelerator`. Its tensors are printed and saved as the
  CPU's: `weft._device.copies`. Inductor refuses them: `weft._device.inductor`.
- `torch.ops.weft.call` has a rule for vmap and a formula for torch.utils.flop_counter.
- `FlopCounterMode`, and `ExportedProgram.run_decompositions` where lengths are fixed, are wrapped: within them modules
  are PyTorch's, so that both give what they give without Weft. From the first of the latter on, tracing below autograd
  knows within it that our operators have composites: `rnn_decompositions`.
- torch.onnx.export's table of operators has ours, each time that it is made: `onnx_recurrent`.

PyTorch's settings are thread-local; their defaults are not, so the defaults are what changes here.
"""

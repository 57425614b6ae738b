"""The models of the survey, each small: by group and name, a function that makes the model and its arguments."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft.explanation._survey.habits import HABITS, Made, Maker

GROUPS = ("recurrent", "habits", "cells", "transformers", "torchvision", "timm")


class NotInstalled(Exception):
    """The group's package is not there, or does not work with this PyTorch."""


def makers(group: str, cells: Path | None = None) -> dict[str, Maker]:
    """The group's models by name. cells: the folder that has the package `cells`.

    Raises:
        NotInstalled: what the group needs is not there.
    """
    if group == "recurrent":
        return _RECURRENT
    if group == "habits":
        return HABITS
    if group == "cells":
        return _cells(cells)
    if group == "transformers":
        _torchvision_without_its_operators()
        return _transformers()
    return _images(group)


# Recurrent models


class Layer(nn.Module):
    """A recurrent layer between an embedding and a head."""

    def __init__(self, layer: nn.Module, width: int = 64) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(50, 32), layer, nn.Linear(width, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(tokens))[0])  # type: ignore[no-any-return]


class CellLoop(nn.Module):
    """A cell called step by step, as everybody writes it."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, ys = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            ys.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(ys, 1)


class EarlyStop(nn.Module):
    """A decoder that stops when all rows have said the last token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(8, 32), nn.GRUCell(32, 32), nn.Linear(32, 8)

    def forward(self, state: Tensor) -> Tensor:
        token = torch.zeros(state.shape[0], dtype=torch.long, device=state.device)
        done = torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)
        out = []
        for _ in range(12):
            state = self.cell(self.embed(token), state)
            token = self.head(state).argmax(-1)
            out.append(token)
            done = done | (token == 7)
            if done.all():
                break
        return torch.stack(out, 1)


class Packed(nn.Module):
    """Sequences of different lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(32, 32, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


class Speech(nn.Module):
    """Convolutions over frames, then recurrent layers and characters."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(40, 48, 5, 2, 2), nn.GELU(), nn.Conv1d(48, 48, 5, 2, 2), nn.GELU())
        self.layer = nn.GRU(48, 48, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(96, 30)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.frames(x).transpose(1, 2))[0]).log_softmax(-1)  # type: ignore[no-any-return]


class Policy(nn.Module):
    """A recurrent policy with value, which forgets where an episode ended."""

    def __init__(self) -> None:
        super().__init__()
        self.see, self.cell, self.act, self.value = (
            nn.Linear(8, 32),
            nn.LSTMCell(32, 32),
            nn.Linear(32, 4),
            nn.Linear(32, 1),
        )

    def forward(self, seen: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
        h = c = seen.new_zeros(seen.shape[0], 32)
        logits, values = [], []
        for step in range(seen.shape[1]):
            keep = 1 - ended[:, step : step + 1]
            h, c = self.cell(torch.tanh(self.see(seen[:, step])), (h * keep, c * keep))
            logits.append(self.act(h))
            values.append(self.value(h))
        return torch.stack(logits, 1), torch.stack(values, 1)


def _tokens() -> Tensor:
    return torch.randint(0, 50, (8, 24))


def _layer(layer: nn.Module, width: int = 64) -> Maker:
    return lambda: (Layer(layer, width), (_tokens(),), {})


_RECURRENT: dict[str, Maker] = {
    "rnn": _layer(nn.RNN(32, 64, batch_first=True)),
    "lstm": _layer(nn.LSTM(32, 64, batch_first=True)),
    "gru": _layer(nn.GRU(32, 64, batch_first=True)),
    "gru, 2 layers": _layer(nn.GRU(32, 64, 2, batch_first=True)),
    "lstm, both ways": _layer(nn.LSTM(32, 64, batch_first=True, bidirectional=True), 128),
    "lstm, projected": _layer(nn.LSTM(32, 96, batch_first=True, proj_size=64)),
    "gru cell in a loop": lambda: (CellLoop(nn.GRUCell(32, 32)), (torch.randn(8, 24, 32),), {}),
    "lstm cell in a loop": lambda: (CellLoop(nn.LSTMCell(32, 32)), (torch.randn(8, 24, 32),), {}),
    "rnn cell in a loop": lambda: (CellLoop(nn.RNNCell(32, 32)), (torch.randn(8, 24, 32),), {}),
    "decoder that stops early": lambda: (EarlyStop(), (torch.randn(8, 32),), {}),
    "packed lstm": lambda: (Packed(), (torch.randn(4, 24, 32), torch.tensor([24, 20, 9, 3])), {}),
    "speech": lambda: (Speech(), (torch.randn(2, 40, 96),), {}),
    "policy": lambda: (Policy(), (torch.randn(8, 16, 8), (torch.rand(8, 16) < 0.1).float()), {}),
}


def _cells(folder: Path | None) -> dict[str, Maker]:
    """Models made of examples/cells: recurrences from the literature for weft.scan."""
    if folder is None or not (folder / "cells" / "zoo.py").exists():
        raise NotInstalled("cells: there is no package `cells` in the folder given (examples of Weft's sources has it)")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    zoo = importlib.import_module("cells.zoo")

    def maker(name: str) -> Maker:
        def make() -> Made:
            example = zoo.CELLS[name](zoo.Size(steps=16, batch=4, width=16))
            return example.module or example.function, (), example.inputs

        return make

    return {name: maker(name) for name in zoo.CELLS}


# Other people's models


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a package built for another PyTorch raises all kinds
        raise NotInstalled(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:120]}") from None


_kept: list[Any] = []


def _torchvision_without_its_operators() -> None:
    """Makes torchvision importable where its own operators were built for another PyTorch (its CUDA wheels beside a CPU
    PyTorch): the import fails for lack of two names, which its models don't use."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return
    except RuntimeError:
        make: Any = torch.library.Library
        library = make("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]


_TORCHVISION = {
    "alexnet": 64, "resnet18": 32, "squeezenet1_1": 64, "mobilenet_v3_small": 32, "shufflenet_v2_x0_5": 32,
    "mnasnet0_5": 32,
}  # fmt: skip
_TIMM = {"resnet10t": 32, "mobilenetv3_small_050": 32, "test_vit": 160, "test_convnext": 32, "test_efficientnet": 32,
         "test_byobnet": 32, "lcnet_035": 32}  # fmt: skip


def _images(group: str) -> dict[str, Maker]:
    _torchvision_without_its_operators()
    package = _package("torchvision.models" if group == "torchvision" else "timm")
    sizes = _TORCHVISION if group == "torchvision" else _TIMM

    def maker(name: str, side: int) -> Maker:
        def make() -> Made:
            model = getattr(package, name)() if group == "torchvision" else package.create_model(name)
            return model, (torch.randn(2, 3, side, side),), {}

        return make

    return {name: maker(name, side) for name, side in sizes.items()}


#: By model class: configurations that make the model tiny.
_TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
         "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip
_GROUPED = _TINY | {"num_key_value_heads": 1, "head_dim": 16}
_TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", _TINY),
    "roberta": ("RobertaConfig", "RobertaModel", _TINY),
    "electra": ("ElectraConfig", "ElectraModel", _TINY | {"embedding_size": 32}),
    "albert": ("AlbertConfig", "AlbertModel", _TINY | {"embedding_size": 16}),
    "distilbert": ("DistilBertConfig", "DistilBertModel",
                   {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 100}),
    "mobilebert": ("MobileBertConfig", "MobileBertModel",
                   _TINY | {"embedding_size": 32, "true_hidden_size": 32, "intra_bottleneck_size": 32}),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel",
             {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64}),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _TINY),
    "opt": ("OPTConfig", "OPTForCausalLM",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64, "vocab_size": 100,
             "word_embed_proj_dim": 32, "max_position_embeddings": 64}),
    "bloom": ("BloomConfig", "BloomForCausalLM", {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100}),
    "llama": ("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralConfig", "MistralForCausalLM", _GROUPED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _GROUPED),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", _GROUPED | {"num_local_experts": 2}),
    "mamba": ("MambaConfig", "MambaForCausalLM",
              {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8}),
    "t5": ("T5Config", "T5Model",
           {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 100}),
}  # fmt: skip


def _transformers() -> dict[str, Maker]:
    package = _package("transformers")

    def maker(configuration: str, model: str, sizes: dict[str, Any]) -> Maker:
        def make() -> Made:
            config = getattr(package, configuration)(pad_token_id=0, bos_token_id=1, eos_token_id=2, **sizes)
            tokens = torch.randint(3, 100, (2, 16))
            more = {"decoder_input_ids": tokens} if model == "T5Model" else {"use_cache": False}
            encoder = configuration.startswith(("Bert", "Roberta", "Electra", "Albert", "Distil", "MobileBert"))
            return getattr(package, model)(config), (), {"input_ids": tokens} | ({} if encoder else more)

        return make

    return {name: maker(*entry) for name, entry in _TRANSFORMERS.items()}

"""Recurrent layers of networks in use, with the sizes that their own configurations give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Network:
    """A stack of recurrent layers as one call runs it.

    Attributes:
        steps, batch: of a typical call; where the network leaves them open, `note` says what was taken.
        dtype: that its own code uses.
        source: where the sizes are read.
    """

    name: str
    cell: str
    hidden: int
    input: int
    steps: int
    batch: int
    source: str
    layers: int = 1
    directions: int = 1
    projection: int = 0
    dtype: str = "fp32"
    note: str = ""


_BONITO = "https://github.com/nanoporetech/bonito/blob/1eb0c1c2d31a1c99a428cf61eaf449b41a47a2e9/bonito/models/configs/dna_r10.4.1%40v4.3.toml"
_DORADO = "https://github.com/nanoporetech/dorado/tree/ba44a0132a6fc54ffa790add140ebf6006a5a994"
_DEEPFILTER = "https://github.com/Rikorose/DeepFilterNet/blob/d375b2d8309e0935d165700c91da9de862a99c31/DeepFilterNet/df/deepfilternet3.py"
_DENOISER = (
    "https://github.com/facebookresearch/denoiser/blob/8afd7c166699bb3c8b2d95b6dd706f71e1075df0/denoiser/demucs.py"
)
_EASYOCR = "https://github.com/JaidedAI/EasyOCR/blob/c4f3cd7225efd4f85451bd8b4a7646ae9a092420/easyocr/easyocr.py"
_ISAAC = (
    "https://github.com/isaac-sim/IsaacGymEnvs/tree/aeed298638a1f7b5421b38f5f3cc2d1079b6d9c3/isaacgymenvs/cfg/train"
)
_NEMO = "https://github.com/NVIDIA/NeMo/blob/1f0f7753f33a52f5e27a89dd2f8f67df5489a281/examples/asr/conf/fastconformer/fast-conformer_transducer_bpe.yaml"
_DEEPBENCH = "https://github.com/baidu-research/DeepBench/blob/da81ba7820739e2e506dc27f382d15be5479f98f/code/kernels/rnn_problems.h"
_NEURALFORECAST = (
    "https://github.com/Nixtla/neuralforecast/tree/5ffa0d08b8bea5173d230f4fd23f734896e1e0e3/neuralforecast/models"
)

NETWORKS = (
    Network(
        "Silero VAD, stream", "lstm", 128, 128, 1, 1,
        "https://github.com/snakers4/silero-vad/tree/806dcba3f0b5d95282d0889a074954a2f8c6397b/src/silero_vad",
    ),
    Network(
        "RNNoise, training", "gru", 384, 384, 2000, 128,
        "https://github.com/xiph/rnnoise/blob/70f1d256acd4b34a572f999a05c87bf00b67730d/torch/rnnoise/train_rnnoise.py",
        layers=3, note="its forward pass",
    ),
    Network("DeepFilterNet3 decoder", "gru", 256, 256, 500, 1, _DEEPFILTER, layers=3, note="5 s"),
    Network(
        "DTLN, training", "lstm", 128, 257, 1875, 32,
        "https://github.com/breizhn/DTLN/blob/1de1f15a8b5b7e1c44905618ff2ef70ca8277fbc/DTLN_model.py",
        layers=2, note="one of two stages; input: 257 bins of a window of 512",
    ),
    Network("Denoiser 48", "lstm", 768, 768, 256, 1, _DENOISER, layers=2, note="steps taken"),
    Network("Denoiser 64", "lstm", 1024, 1024, 256, 1, _DENOISER, layers=2, note="steps taken"),
    Network(
        "EnCodec 24 kHz", "lstm", 512, 512, 75, 1,
        "https://github.com/facebookresearch/encodec/blob/0e2d0aed29362c8e8f52494baf3e6f99056b214f/encodec/modules/seanet.py",
        layers=2, note="1 s",
    ),
    Network(
        "Neural Amp Modeler, training", "lstm", 18, 1, 512, 16,
        "https://github.com/sdatkinson/neural-amp-modeler/blob/e296039fb46607a87e8741325687d53ba204fcc1/nam/train/core.py",
        layers=3, note="batch taken",
    ),
    Network(
        "pyannote segmentation", "lstm", 128, 60, 589, 1,
        "https://github.com/pyannote/pyannote-audio/blob/b749285c5cdd4636b2edc7f766f1352c8dde9369/src/pyannote/audio/models/segmentation/PyanNet.py",
        layers=2, directions=2, note="steps taken: 10 s",
    ),
    Network("Parakeet predictor, one label", "lstm", 640, 640, 1, 1, _NEMO),
    Network("Parakeet predictor, batch of labels", "lstm", 640, 640, 1, 128, _NEMO),
    Network("Parakeet predictor, training", "lstm", 640, 640, 64, 32, _NEMO, dtype="bf16", note="steps and batch taken"),
    Network(
        "icefall LSTM transducer", "lstm", 1024, 512, 2, 1,
        "https://github.com/k2-fsa/icefall/blob/107d5e2095aa1f058e1126e93e3a175e1d50b981/egs/librispeech/ASR/lstm_transducer_stateless2/train.py",
        layers=12, projection=512, note="a chunk of 2 steps",
    ),
    Network(
        "Chatterbox voice encoder", "lstm", 256, 40, 160, 8,
        "https://github.com/resemble-ai/chatterbox/blob/5de7a54aa4e5e2baadb0182dde554908b48b85c2/src/chatterbox/models/voice_encoder/voice_encoder.py",
        layers=3, note="batch taken",
    ),
    Network(
        "Kokoro", "lstm", 256, 640, 100, 1,
        "https://github.com/hexgrad/kokoro/blob/dfb907a02bba8152ca444717ca5d78747ccb4bec/kokoro/modules.py",
        directions=2, note="steps taken",
    ),
    Network(
        "Tacotron 2 encoder", "lstm", 256, 512, 100, 64,
        "https://github.com/NVIDIA/tacotron2/tree/185cd24e046cc1304b4f8e564734d2498c6e2e6f", directions=2, note="steps taken",
    ),
    Network(
        "WaveRNN, training", "gru", 512, 512, 1375, 32,
        "https://github.com/fatchord/WaveRNN/blob/3d05d465f97096583d87a6827948e0d0d3cb7e92/hparams.py",
    ),
    Network("bonito sup", "lstm", 1024, 1024, 1667, 96, _BONITO, layers=5, dtype="fp16", note="all layers forward"),
    Network("dorado hac", "lstm", 384, 384, 1667, 128, _DORADO, layers=5, dtype="fp16", note="steps and batch taken"),
    Network("dorado fast", "lstm", 96, 96, 1667, 128, _DORADO, layers=5, dtype="fp16", note="steps and batch taken"),
    Network(
        "RecurrentPPO, training", "lstm", 256, 64, 128, 16,
        "https://github.com/Stable-Baselines-Team/stable-baselines3-contrib/blob/0ca7fdd8d1150bd3a48b86016a85db036efc3b6d/sb3_contrib/common/recurrent/policies.py",
        note="input and batch taken",
    ),
    Network(
        "rsl_rl, training", "gru", 256, 48, 24, 1024,
        "https://github.com/leggedrobotics/rsl_rl/tree/c281c32e5746e75570c1a29bfa78bca0200cc5ff", note="input and batch taken",
    ),
    Network("AllegroHand, rollout", "lstm", 512, 512, 1, 16384, _ISAAC),
    Network("AllegroHand, training", "lstm", 512, 512, 16, 1024, _ISAAC),
    Network("DeXtreme, training", "lstm", 1024, 1024, 16, 1024, _ISAAC),
    Network("Kuka, training", "lstm", 768, 768, 16, 512, _ISAAC, note="batch: 8192 / 16"),
    Network("EasyOCR gen2", "lstm", 256, 256, 100, 1, _EASYOCR, layers=2, directions=2, note="steps taken"),
    Network("EasyOCR gen1", "lstm", 512, 512, 100, 1, _EASYOCR, layers=2, directions=2, note="steps taken"),
    Network(
        "Open-Unmix", "lstm", 256, 512, 255, 1,
        "https://github.com/sigsep/open-unmix-pytorch/blob/fb672c9584997c2b05e148eeaa65b4c23ed4693b/openunmix/model.py",
        layers=3, directions=2, note="steps taken: 6 s",
    ),
    Network(
        "NeuralHydrology", "lstm", 128, 32, 365, 256,
        "https://github.com/neuralhydrology/neuralhydrology/tree/76d08502a8bb2c0433a93dd4b82dca2cb38605ea/examples",
        note="input taken",
    ),
    Network("neuralforecast LSTM", "lstm", 128, 1, 96, 128, _NEURALFORECAST, layers=2, note="steps taken"),
    Network("neuralforecast DeepAR", "lstm", 128, 1, 96, 1024, _NEURALFORECAST, layers=2, note="steps taken"),
    Network(
        "GluonTS DeepAR", "lstm", 40, 40, 72, 32,
        "https://github.com/awslabs/gluonts/blob/83c08fdcd625be56244f4145f41500468974b144/src/gluonts/torch/model/deepar/estimator.py",
        layers=2, note="input and steps taken",
    ),
    Network("DeepBench LSTM 512", "lstm", 512, 512, 25, 4, _DEEPBENCH),
    Network("DeepBench LSTM 2048", "lstm", 2048, 2048, 25, 4, _DEEPBENCH),
    Network("DeepBench GRU 2816", "gru", 2816, 2816, 187, 4, _DEEPBENCH, note="shapes of the list combined"),
    Network("DeepBench GRU 1536", "gru", 1536, 1536, 187, 4, _DEEPBENCH, note="shapes of the list combined"),
    Network("DeepBench RNN 1760, training", "rnn_tanh", 1760, 1760, 50, 64, _DEEPBENCH, note="its forward pass"),
)  # fmt: skip

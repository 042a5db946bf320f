"""What does vLLM make of the driver? An engine in this process answers a few prompts, with a tiny model without weights.

usage: vllm_generate.py DIRECTORY [--graphs] [--compiled DIRECTORY] [--phases N]

Prints "ready" once the engine has answered a first prompt and before each further phase, waits for a line on standard
input, generates, and prints "phase". With the mock driver every token is the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

PROMPTS, TOKENS = 16, 16
LAYERS, HIDDEN, HEADS, VOCABULARY, LONGEST = 4, 256, 4, 320, 256
SPECIAL = ["<|begin|>", "<|end|>"]


def make_model(directory: Path) -> None:
    """Write a Llama's configuration and a tokenizer of single bytes; the weights are made up when it is loaded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    begin, end = map(tokenizer.token_to_id, SPECIAL)
    write(
        directory / "config.json",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        hidden_act="silu",
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=HIDDEN // HEADS,
        max_position_embeddings=LONGEST,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=False,
        vocab_size=VOCABULARY,
        bos_token_id=begin,
        eos_token_id=end,
        torch_dtype="bfloat16",
    )
    write(
        directory / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        pad_token=SPECIAL[1],
        model_max_length=LONGEST,
    )


def write(path: Path, **values: object) -> None:
    path.write_text(json.dumps(values))


def say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, "pid": os.getpid(), **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--graphs", action="store_true", help="torch.compile and CUDA graphs")
    parser.add_argument("--compiled", type=Path, help="where to keep what is compiled, and the model (DIRECTORY)")
    parser.add_argument("--phases", type=int, default=1)
    options = parser.parse_args()
    compiled = options.compiled or options.directory
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CACHE_ROOT": str(compiled / "vllm"),
        "TRITON_CACHE_DIR": str(compiled / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
    }
    make_model(compiled / "model")
    out, sys.stdout = sys.stdout, sys.stderr  # what vLLM prints is no event
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(compiled / "model"),
        load_format="dummy",
        dtype="bfloat16",
        max_model_len=LONGEST,
        max_num_seqs=PROMPTS,
        gpu_memory_utilization=0.5,
        enforce_eager=not options.graphs,
    )
    sampling = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    prompts = [f"prompt {n}: " + "the quick brown fox " * (n % 4) for n in range(PROMPTS)]
    llm.generate(prompts, sampling, use_tqdm=False)
    sys.stdout = out
    for _ in range(options.phases):
        say("ready")
        sys.stdin.readline()
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        say("phase", tokens=sum(len(answer.outputs[0].token_ids) for answer in answers))


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# Other load clients beside this one: installs aiperf and guidellm, each in a Python
# environment of its own below BENCH_PEERS (default: a directory in the system's
# temporary one; about 7 GB), makes them a tokenizer of 256 bytes, as they want one,
# and runs them against the benchmark's server. Nothing else needs any of it.
set -euo pipefail
export BENCH_PEERS=${BENCH_PEERS:-${TMPDIR:-/tmp}/assay-bench-peers}
mkdir -p "$BENCH_PEERS"
for tool in aiperf guidellm; do
	[ -x "$BENCH_PEERS/$tool/bin/$tool" ] && continue
	python3 -m venv "$BENCH_PEERS/$tool" && "$BENCH_PEERS/$tool/bin/pip" install --quiet "$tool" ||
		echo "$tool could not be installed; the table goes without it" >&2
done
for tool in guidellm aiperf; do
	[ -d "$BENCH_PEERS/tokenizer" ] && break
	"$BENCH_PEERS/$tool/bin/python" - "$BENCH_PEERS/tokenizer" <<-'PYTHON' || continue
	import sys
	from tokenizers import Tokenizer, models, pre_tokenizers, decoders
	from transformers import PreTrainedTokenizerFast
	vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
	for extra in ("<s>", "</s>"):
	    vocab[extra] = len(vocab)
	t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
	t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
	t.decoder = decoders.ByteLevel()
	PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
	PYTHON
done
BENCH_PARTS=peers ${GO:-go} run ./bench/client

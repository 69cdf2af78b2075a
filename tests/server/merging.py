"""A byte-level tokenizer that merges letters, so that a text can be spelled by other tokens."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from akv_rsi.tasks.template import ChatTemplate

TEMPLATE = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}\
</tool_call>{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""


@cache
def template() -> ChatTemplate:
    model = Tokenizer(BPE())
    model.pre_tokenizer = ByteLevel(add_prefix_space=False)
    model.decoder = ByteLevelDecoder()
    marks = ["<|im_start|>", "<|im_end|>"]
    trainer = BpeTrainer(
        vocab_size=400, special_tokens=marks, initial_alphabet=ByteLevel.alphabet()
    )
    model.train_from_iterator(["the answer of the day is an other answer\n"] * 8, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=model, eos_token="<|im_end|>")
    made.chat_template = TEMPLATE
    return ChatTemplate(made)

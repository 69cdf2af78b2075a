"""Small tokenizers with chat templates of several families, written for these tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

MARKS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<turn>", "<end>", "<|head|>", "<|/head|>"]

CHATML = """\
{%- for m in messages -%}
{%- if loop.first and m.role != 'system' -%}<|im_start|>system
You help.<|im_end|>
{% endif -%}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

HEADERS = """\
{{- '<s>' -}}
{%- for m in messages -%}
<|head|>{{ m.role }}<|/head|>

{{ m.content | trim }}<end>
{%- endfor -%}
{%- if add_generation_prompt -%}<|head|>assistant<|/head|>

{% endif -%}"""

# The system prompt is written into the first user message, and roles must take turns.
FOLDED = """\
{{- '<s>' -}}
{%- if messages[0].role == 'system' -%}
{%- set first = messages[0].content + '\\n\\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}{%- set first = '' -%}{%- set rest = messages -%}{%- endif -%}
{%- for m in rest -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
{{- raise_exception('roles must take turns') -}}{%- endif -%}
<turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ first if loop.first else '' }}{{ m.content | trim }}<end>
{% endfor -%}
{%- if add_generation_prompt -%}<turn>model
{% endif -%}"""

# Reasoning is taken out of answers that precede the last user message.
THINKING = """\
{%- set ns = namespace(last=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}
{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- set said = m.content -%}
{%- if m.role == 'assistant' and loop.index0 < ns.last and '</think>' in said -%}
{%- set said = said.split('</think>')[-1] -%}{%- endif -%}
<|im_start|>{{ m.role }}
{{ said }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

# Tools stand in front of the last user message, wherever that is; no special tokens in between.
MOVED_TOOLS = """\
{{- '<s>' -}}
{%- set ns = namespace(last=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}
{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}
{%- if tools and loop.index0 == ns.last -%}[TOOLS]{{ tools | tojson }}[/TOOLS]{%- endif -%}
[INST] {{ m.content }} [/INST]
{%- elif m.role == 'assistant' %} {{ m.content }}</s>
{%- else -%}[RESULT]{{ m.content }}[/RESULT]{%- endif -%}
{%- endfor -%}"""

# Results in a row share one turn of the user, which the last one closes.
RESULTS = """\
{%- for m in messages -%}
{%- if m.role != 'tool' -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% else -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}<|im_start|>user{% endif %}
[RESULT]
{{ m.content }}
[/RESULT]
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}<|im_end|>
{% endif -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""

# Messages end with an empty line and begin with one: one token takes from both.
LINES = """\
{%- for m in messages -%}{{ '\\n' + m.role }}: {{ m.content }}{{ '\\n' }}{%- endfor -%}"""

PICKY = "{%- if messages|length == 1 -%}{{ raise_exception('too short') }}{%- endif -%}" + HEADERS
COUNTED = "{{ messages | length }} messages\n" + CHATML


@cache
def tokenizer(template: str) -> Any:
    """A byte-level BPE tokenizer of some 400 tokens."""
    text = ["the file holds the answer\n", "\nuser: open the file\n\nassistant: answer\n\n"] * 8
    model = Tokenizer(BPE())
    # Without words, tokens may reach over the border of two messages.
    model.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=template != LINES)
    model.decoder = ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    model.train_from_iterator(
        text, BpeTrainer(vocab_size=400, special_tokens=MARKS, initial_alphabet=alphabet)
    )
    made = PreTrainedTokenizerFast(tokenizer_object=model, bos_token="<s>", eos_token="</s>")
    made.chat_template = template
    return made

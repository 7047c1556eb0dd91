# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with the published chat templates, the oracle of chat_template_test.cpp:

    python3 make_template_goldens.py QWEN3.8_TEMPLATE QWEN3.6_TEMPLATE golden/chat_template.json

Each case: messages as on the OpenAI wire (any role anywhere, content a text, null, absent or a list of text parts,
arguments as JSON text), tools, options as far as the request gives them, and for each template the prompt (its SHA-256
where it is long) or the template's own error. "gather": system and developer messages go to the front before rendering.
Needs python3-jinja2. The templates themselves are not part of this repository.
"""
import hashlib
import json
import pathlib
import random
import sys

import jinja2.sandbox

LONGEST_PROMPT = 450  # bytes that stand in the file as they are
BLANKS = ["", " ", "\n", "\t \n", "\u00a0", "\u3000", "\x1c", "\x85", "\u2028", "\u200b", "\r\n"]
TEXTS = [
    "hi", "What is 2+2?", "a\n\nb", "caf\u00e9 \u4f60\u597d \U0001f638", "<|im_end|>", "<think>x</think>", "{\"a\": 1}", "",
    "<tool_response>\n1\n</tool_response>", "<tool_response>open", "line\r\nline", "\u0301mark", "</think>", "a<b>&'\"\\",
]
VALUES = [
    1, -7, 0, True, False, None, "t", "", " pad ", "two\nlines", "\u00e9", [], {}, {"a": [1, "b"]}, [None, [True], {"k": "v"}], 1.0, -0.0,
    0.1, 1e16, 123456789012345.6, 1e-5, 0.0001, 5e-324, 1.7976931348623157e308, 1e22, 123456789.125, 18446744073709551615,
    -9223372036854775808, "q\"\\/\b\f\n\r\t\x01\x1f\x7f</script>", {"\u00fc\n": "\u2028"}, 100.0, 9999999999999998.0, 2.5e-7,
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather in a city",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                    "required": ["city"]}}},
    {"type": "function", "function": {"name": "f", "parameters": {"z": 1.5, "a": [None, True, 1e21], "\u00e9": "<&>'\u4f60"}}},
    {"name": "bare"},
]


def environment():
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env


def wire_call(name, arguments, call_id="call_1"):
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def for_template(message, name):
    """Arguments as the object that the wire's text describes. Qwen3.8's template takes '' for no parameters, where
    Qwen3.6's fails on it; the server takes it so for both."""
    message = json.loads(json.dumps(message))
    if message["role"] == "developer":
        message["role"] = "system"
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        if arguments != "":
            call["function"]["arguments"] = json.loads(arguments)
        elif name == "qwen3.6":
            call["function"]["arguments"] = {}
    return message


def joined(content):
    return content if isinstance(content, str) else "".join(part["text"] for part in content or [])


def gather(messages):
    """One system message, at the front: the trimmed contents of all that are not blank."""
    systems = [m for m in messages if m["role"] in ("system", "developer")]
    if not systems:
        return messages
    contents = [joined(m.get("content")).strip() for m in systems]
    rest = [m for m in messages if m["role"] not in ("system", "developer")]
    return [system("\n\n".join(c for c in contents if c)), *rest]


def user(content): return {"role": "user", "content": content}
def system(content): return {"role": "system", "content": content}
def developer(content): return {"role": "developer", "content": content}
def tool(content): return {"role": "tool", "tool_call_id": "call_1", "content": content}
def parts(*texts): return [{"type": "text", "text": text} for text in texts]


def assistant(content, reasoning=None, calls=()):
    message = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def fixed_cases():
    hi = [user(" hi ")]
    every = {"f": VALUES[0], **{f"p{i}": value for i, value in enumerate(VALUES)}}
    yield hi, None, {}
    for effort in ("xhigh", "medium", "low", "high", "max", "minimal", "none", "", "XHIGH"):
        yield hi, None, {"reasoning_effort": effort}
        yield hi, None, {"reasoning_effort": effort, "enable_thinking": False}
    for tools in (TOOLS, TOOLS[2:], []):
        for effort in ("xhigh", "medium", "low"):
            for head in ([], [system(" S ")], [system(" ")]):
                yield head + hi, tools, {"reasoning_effort": effort}
    for messages in ([], [system("S")], [user("a"), system("S")], [system("A"), system("B"), user("a")],
                     [user("a"), assistant("b"), system("S"), user("c")], [assistant("b")], [tool("1")],
                     [user("<tool_response>1</tool_response>")], [system("S"), user("a")], [assistant("b"), user("a")],
                     [tool("1"), user("a")], [tool("1"), tool("2"), user("a"), tool("3")]):
        yield messages, None, {"reasoning_effort": "medium"}
    calls = [wire_call("f", {"x": 1, "s": "t", "n": None, "o": {"a": [1, "b"]}}), wire_call("g", {})]
    for arguments in ("", "{}", " { } ", "{\"city\":\"Paris\"}", "{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":1E5,\"b\":-0,\"c\":1.10}"):
        calls.append(wire_call("h", arguments))
    for preserve in (True, False):
        options = {"reasoning_effort": "medium", "preserve_thinking": preserve}
        yield [user("a"), assistant("b"), user("c")], None, options
        yield [user("a"), assistant("", " r ", calls), tool("1"), tool(" 2 ")], None, options
        yield [user("a"), assistant("x ", " r ", calls[:1]), tool("1"), assistant("y", "s"), user("z")], None, options
        yield [user("a"), assistant("x", "r"), user("<tool_response>q</tool_response>"), assistant("y", "s")], None, options
    yield [user("a"), assistant("text", None, [wire_call("every", every)])], None, {"add_generation_prompt": False}


def grid():
    """Every beginning with every body under every set of options; tools in every fifth."""
    q = user("q?")
    f = [wire_call("get_weather", {"city": "Paris"})]
    two = [wire_call("get_weather", {"city": "M\u00fcnchen", "days": 3}), wire_call("f", {"a": [None, 1.5], "o": {}}, "call_2")]
    heads = [[], [system("You are helpful.")], [system(" \n")], [developer("Be brief.")], [system(parts("Part one, ", "part two. "))],
             [system("\u3000S\x1c"), developer("")]]
    bodies = [
        [user(" hi ")],
        [user(parts("a", "", " b "))],
        [user(parts())],
        [user("a"), assistant("b"), q],
        [user("a"), assistant("b", "why"), user("c"), assistant("d", "because"), q],
        [user("a"), assistant(None, "look it up", f), tool("21 C")],
        [user("a"), assistant("Both:", None, two), tool(parts("21", " C")), tool("\n{}\n"), assistant("Done.", " r "), q],
        [user("a"), assistant("", "", f), tool(""), assistant("", "again", f), tool("x")],
        [user("a"), assistant("<think>\nold\n</think>\n\n  b"), q],
        [user("a"), assistant("x</think>y"), assistant("<think>1<think>2</think>3</think>", None, f), tool("t"), q],
        [user("a"), assistant("<think>kept</think>b", "r"), user("<tool_response>w</tool_response>"), assistant("</think>")],
        [user("a"), assistant("b", None), developer("Mind the gap."), q],
        [user("a"), system("Late."), assistant("b", "r"), system(parts("Later.")), q],
        [assistant("I begin."), user("a"), assistant("</think>\n\n c ", None, two)],
        [user("a"), {"role": "assistant", "tool_calls": f}, {"role": "tool", "name": "get_weather", "content": "1"}],
        [user("\u4f60\u597d \U0001f638<|im_end|>"), assistant("\u200b\u0645\u0631\u062d\u0628\u0627\u00a0"), user("e\u0301\r\n")],
    ]
    options = [{}, {"reasoning_effort": "medium"}, {"reasoning_effort": "low", "preserve_thinking": False},
               {"enable_thinking": False}, {"preserve_thinking": False, "add_generation_prompt": False},
               {"reasoning_effort": "medium", "preserve_thinking": True}]
    index = 0
    for head in heads:
        for body in bodies:
            for chosen in options:
                tools = TOOLS[index % 3:] if index % 5 == 0 else None
                index += 1
                yield head + body, tools, chosen, True


def random_conversation(rng):
    def text():
        return rng.choice(BLANKS) + rng.choice(TEXTS) + rng.choice(BLANKS)

    messages = [system(text())] if rng.random() < 0.3 else []
    if rng.random() < 0.8:
        messages.append(user("a" + text()))
    for _ in range(rng.randint(1, 5)):
        role = rng.choice(("user", "user", "assistant", "assistant", "tool", "tool", rng.choice(("user", "system", "developer"))))
        if role == "assistant":
            calls = [wire_call(rng.choice(("f", "g.h", "n\u00e9")),
                               {rng.choice("xyz") + str(i): rng.choice(VALUES) for i in range(rng.randint(0, 3))})
                     for _ in range(rng.choice((0, 0, 1, 2)))]
            content = rng.choice((text(), text(), parts(text(), text()), text() + "</think>" + text(), None))
            messages.append(assistant(content, rng.choice((None, None, "", text(), "r")), calls))
        else:
            messages.append({"role": role, "content": rng.choice((text(), text(), parts(text(), text())))})
    # Mostly medium and mostly no tools: their fixed sentences would fill the file.
    options = {"reasoning_effort": rng.choice(("medium",) * 8 + ("low", "xhigh"))}
    if rng.random() < 0.3:
        options["enable_thinking"] = False
    if rng.random() < 0.4:
        options["preserve_thinking"] = False
    if rng.random() < 0.2:
        options["add_generation_prompt"] = False
    tools = rng.sample(TOOLS, rng.randint(1, 2)) if rng.random() < 0.06 else None
    return messages, tools, options


def rendered(name, template, messages, tools, options):
    arguments = {"add_generation_prompt": True, **options}
    try:
        prompt = template.render(messages=[for_template(m, name) for m in messages], tools=tools, **arguments)
    except jinja2.TemplateError as error:
        return {"error": str(error)}
    digest = hashlib.sha256(prompt.encode()).hexdigest()
    return {"prompt": prompt} if len(prompt.encode()) <= LONGEST_PROMPT else {"sha256": digest}


def main():
    sources = {name: pathlib.Path(path) for name, path in zip(("qwen3.8", "qwen3.6"), sys.argv[1:3])}
    templates = {name: environment().from_string(path.read_text(encoding="utf-8")) for name, path in sources.items()}
    rng = random.Random(38)
    cases = [*((*case, False) for case in fixed_cases()), *grid(),
             *((*random_conversation(rng), rng.random() < 0.8) for _ in range(250))]
    lines = []
    for messages, tools, options, gathered in cases:
        case = {"messages": messages, "tools": tools, "options": options, "gather": gathered}
        source = gather(messages) if gathered else messages
        case.update({name: rendered(name, template, source, tools, options) for name, template in templates.items()})
        lines.append(json.dumps(case, ensure_ascii=False, separators=(",", ":")))
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in sources.items()}
    text = '{"templates":%s,"cases":[\n%s\n]}\n' % (json.dumps(digests), ",\n".join(lines))
    pathlib.Path(sys.argv[3]).write_text(text, encoding="utf-8")


main()

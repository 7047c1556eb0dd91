# SPDX-License-Identifier: Apache-2.0
"""python3 -m unittest documents_test        (in this folder, or `discover -p '*_test.py'`)"""
import json
import re
import unittest
from decimal import Decimal
from pathlib import Path

import phrases
import second
import sentences
from documents import Generator, evaluation_set, split_of, to_json
from prompt import completion, render
from words import HELD_OUT, TRAIN

COPIED = {"log": ("time", "service", "message"), "invoice": ("invoice_id", "customer")}


def strings_to_copy(document):
    """The strings of an answer that must stand in the document letter by letter."""
    if document.task == "log":
        return [record[key] for record in document.answer for key in COPIED["log"]]
    if document.task == "invoice":
        return [document.answer[key] for key in COPIED["invoice"]] + [item["name"] for item in document.answer["items"]]
    return [str(value) for key, value in document.answer.items() if key not in ("date", "start_date")]


TOKENS = ("ab", "Cor", "ing", "ton")  # asks the generator for its training variety


class documents(unittest.TestCase):
    def test_answers_stand_in_the_text(self):
        for split, tokens in (("train", ()), ("train", TOKENS), ("dev", ()), ("held_out", ()), ("second", ())):
            generator = Generator(split, "test", tokens)
            for _ in range(1000):
                document = generator.document()
                for value in strings_to_copy(document):
                    self.assertIn(value, document.text)

    def test_invoices_add_up(self):
        generator = Generator("train", "sums")
        for _ in range(500):
            answer = generator.invoice().answer
            self.assertEqual(sum((i["qty"] * i["price"] for i in answer["items"]), Decimal(0)), answer["total"])

    def test_log_levels_follow_the_text(self):
        generator = Generator("train", "levels")
        for _ in range(500):
            document = generator.log()
            lines = document.text.split("\n")
            self.assertEqual(len(lines), len(document.answer))
            for line, record in zip(lines, document.answer):
                self.assertIn(record["level"], line.upper())

    def test_written_json_is_the_answer(self):
        generator = Generator("train", "json")
        for _ in range(500):
            answer = generator.document().answer
            self.assertEqual(json.loads(to_json(answer)), json.loads(json.dumps(answer, default=float)))

    def test_the_same_seed_gives_the_same_documents(self):
        one, two = Generator("train", 5), Generator("train", 5)
        self.assertEqual([one.text_pair() for _ in range(20)], [two.text_pair() for _ in range(20)])


class splits(unittest.TestCase):
    def test_held_out_words_are_in_no_training_list(self):
        known = {word.lower() for words in TRAIN.values() for word in words}
        for held_out in (HELD_OUT, second.WORDS):
            for kind, words in held_out.items():
                self.assertEqual([word for word in words if word.lower() in known], [], kind)
            known |= {word.lower() for words in held_out.values() for word in words}

    def test_layouts_are_disjoint(self):
        seen = {}
        for split, tokens in (("train", ()), ("train", TOKENS), ("dev", ()), ("held_out", ()), ("second", ())):
            generator = Generator(split, "layouts", tokens)
            layouts = {layout for _ in range(2000) for layout in generator.document().layouts}
            seen[split] = seen.get(split, set()) | layouts
            for layout in layouts:
                if isinstance(layout[-1], tuple):  # a combination; a sentence is (name, template)
                    self.assertEqual(split_of(layout), "held_out" if split == "second" else split)
        self.assertEqual(seen["train"] & (seen["held_out"] | seen["second"]), set())
        self.assertEqual(seen["train"] & seen["dev"], set())
        self.assertEqual(seen["dev"] & seen["held_out"], set())

    def test_held_out_fences_are_never_in_training(self):
        generator = Generator("train", "fences", TOKENS)
        for _ in range(3000):
            lines = generator.conversation()["messages"][-1]["content"].split("\n")
            self.assertFalse({"===", "~~~", "*****", "[begin]"} & set(lines))

    def test_held_out_sentences_and_requests_are_never_in_training(self):
        evaluated = {template for templates in second.SENTENCES.values() for template in templates}
        evaluated |= {template for _, held_out in Generator.SENTENCES.values() for template in held_out}
        for templates in sentences.SENTENCES.values():
            self.assertFalse(evaluated & set(templates))
        verbs = {verb.lower() for verb in Generator.HELD_OUT_AS_VERBS + Generator.HELD_OUT_TO_VERBS + second.AS_VERBS + second.TO_VERBS}
        asked = [*sentences.REQUESTS, *phrases.AS_VERBS, *phrases.TO_VERBS]
        self.assertEqual([text for text in asked if any(re.search(rf"\b{verb}\b", text.lower()) for verb in verbs)], [])

    def test_the_held_out_files_are_what_the_generator_writes(self):
        for split, file in (("held_out", "heldout.jsonl"), ("second", "second.jsonl")):
            lines = (Path(__file__).parent / "eval" / file).read_text().splitlines()
            rows = evaluation_set(split, 200)
            for row in rows:
                del row["completion"]
            self.assertEqual([json.loads(line) for line in lines], rows)


class prompts(unittest.TestCase):
    def test_turns_are_rendered_as_the_template_does(self):
        user = [{"role": "user", "content": " hi "}]
        self.assertEqual(render(user, True, "medium"), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n")
        self.assertEqual(render(user, False), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
        self.assertTrue(render(user).startswith("<|im_start|>system\nReasoning effort is set to xhigh. "))
        three = [{"role": "system", "content": " S "}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
        self.assertEqual(render(three, True, "medium"),
                         "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n"
                         "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n<think>\n")

    def test_completions_end_the_turn(self):
        self.assertEqual(completion("r", "c", True), "r\n</think>\n\nc<|im_end|>")
        self.assertEqual(completion("r", "c", False), "c<|im_end|>")


if __name__ == "__main__":
    unittest.main()

// SPDX-License-Identifier: Apache-2.0
// Writes what Hugging Face tokenizers makes of sample texts, as [{"text": ..., "ids": [...]}]:
//   npm install tokenizers@0.23.2        (in any folder; the native library behind the Python package)
//   NODE_PATH=<that folder>/node_modules node make_hf_encodings.mjs TOKENIZER_JSON OUTPUT_JSON
import { createRequire } from 'node:module';
import { writeFileSync } from 'node:fs';

const { Tokenizer } = createRequire(process.env.NODE_PATH + '/')('tokenizers');
const [tokenizerPath, outputPath] = process.argv.slice(2);

const curated = [
  '', ' ', '\n', '\r\n', '\u0000', 'a', '\u0301', 'The invoice number is 2024-0117.',
  "isn't it's we'll they're I've I'd I'm 'S 'T 'RE 'Ve 'LL 'd '\u017f '\u017fa don''t ''s 'sam 'x",
  'a  b   c\t\td \t e\n\nf\r\n\r\ng \n h  \n  i\u00a0j\u3000k\u2028l\u0085m   ', '   leading', 'trailing   \n ',
  'x=1;y+=22;//333\n\n\n  return(value_of(x));\n}\n', '!?\n?! ...\r\n\r\n"quoted" (brackets) [x] {y} #tag @me $5.00 50%',
  'e\u0301 a\u030a \u1100\u1161\u11a8 \u212b \u2126 \u0958 a\u0323\u0307 a\u0307\u0323 =\u0338 \ufb1d \u0344 \u0f73',
  '\u4f60\u597d\uff0c\u4e16\u754c\uff01\u65e5\u672c\u8a9e\u3067\u3059\u3002\uc548\ub155\ud558\uc138\uc694',
  '\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0645\u0631\u062d\u0628\u0627 \u0627\u0644\u0652\u0633\u064e\u0651\u0644\u0627\u0645 \u0928\u092e\u0938\u094d\u0924\u0947',
  '\u{1f638}\u{1f468}\u200d\u{1f469}\u200d\u{1f467}\u{1f1e9}\u{1f1ea}\u2764\ufe0f1\ufe0f\u20e3 \u{1f600}x',
  '\u0661\u0662\u0663 \u00b2\u00b3 \u2167 \u00bd \u3007 12345678901234567890 1,000.50',
  'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz qrs qrsqrs', 'a'.repeat(300), ' '.repeat(100) + 'x', '\u0301\u0323'.repeat(40),
  '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n', '<|im_start|>userx<|im_start|>use',
  '<|im_start|><|im_end|><think></think><tool_call></tool_call><tool_response></tool_response><|endoftext|>',
  '<<think>> <think <|im_start| <|im_<|im_end|> think> < think > </think><', ' <think> a <think>\n\nb', 'e<|im_end|>\u0301',
  '<|e\u0301|><|\u00e9|>', 'a\u{e0001}b\u180ec\ufeffd\u200be\u00adf\u001cg\u007fh\ue000i\ufffdj',
  '{"a": [1, 2.5, null, true], "b": "\\u00e9\\n"}', 'https://example.org/a?b=c&d=%20#e', 'snake_case camelCase kebab-case',
];

const alphabet = [
  ...'aAsStTlLvVeEzq019 \n\r\t\'-_<>|/.,"', '\u0000', '\u001c', '\u0085', '\u00a0', '\u00ad', '\u00b2', '\u00e9', '\u017f', '\u0301',
  '\u0307', '\u0323', '\u0338', '\u0345', '\u0391', '\u0410', '\u05d0', '\u05b0', '\u0627', '\u0651', '\u0661', '\u0915', '\u093c', '\u094d', '\u0958', '\u0f71',
  '\u0f72', '\u1100', '\u1161', '\u11a8', '\uac00', '\u1680', '\u180e', '\u2003', '\u200b', '\u200d', '\u2028', '\u202f', '\u20ac', '\u20dd', '\u2126',
  '\u212a', '\u2160', '\u3000', '\u3007', '\u4e00', '\ufb05', '\ufe0f', '\ufeff', '\uff01', '\ufffd', '\u{1d7d8}', '\u{1f1e9}', '\u{1f638}', '\u{20000}',
  '\u{2f800}', '<|im_end|>', '<think>', '</think>', '<tool_call>', "'ll", "'RE", 'the', ' invoice', '\r\n',
];

let state = 20240117;
function below(limit) { // a 31-bit linear congruential generator: the same texts everywhere
  state = (state * 48271) % 2147483647;
  return state % limit;
}
const random = Array.from({ length: 400 }, () =>
  Array.from({ length: 1 + below(24) }, () => alphabet[below(alphabet.length)]).join(''));

const tokenizer = Tokenizer.fromFile(tokenizerPath);
const lines = [];
for (const text of [...curated, ...random]) {
  const encoding = await tokenizer.encode(text, null, { addSpecialTokens: false });
  lines.push(JSON.stringify({ text, ids: Array.from(encoding.getIds()) }));
}
writeFileSync(outputPath, '[\n' + lines.join(',\n') + '\n]\n');

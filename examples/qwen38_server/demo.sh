#!/usr/bin/env bash
# Builds the server, starts it on a free port, has it turn an invoice into JSON, checks the answer and stops it:
#   bash examples/qwen38_server/demo.sh [--k N] [--serve]
# --k N    draft depth of the speculation, 0..15 (default 7); the answer is the same for each
# --serve  keep the server up afterwards and print how to call it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
model=$here/demo_model
server_program=${QWEN38_SERVER:-$root/build/release/examples/qwen38_server/qwen38_server}

k=7
serve=
while [ $# -gt 0 ]; do
  case $1 in
    --k) k=${2:?--k needs a number}; shift ;;
    --serve) serve=1 ;;
    -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    *) echo "demo.sh: unknown option $1 (known: --k N, --serve)" >&2; exit 2 ;;
  esac
  shift
done
[[ $k =~ ^([0-9]|1[0-5])$ ]] || { echo "demo.sh: --k $k: expected 0..15" >&2; exit 2; }

say() { printf '\n== %s\n' "$*"; }
fail() { printf '\ndemo.sh: %s\n' "$*" >&2; exit 1; }

work=$(mktemp -d)
server=
stop_server() {  # returns the server's exit code
  local process=$server
  server=
  kill -TERM "$process" 2> /dev/null || true
  wait "$process"
}
clean_up() {
  [ -z "$server" ] || stop_server || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -z "${QWEN38_SERVER:-}" ]; then
  say 'set-up'
  bash "$root/cmake/setup.sh" build demo
  say 'build'
  cd "$root"
  cmake --preset release -DQPN_BUILD_BENCH=OFF > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
  cmake --build --preset release -j "$(nproc)" --target qwen38_server
fi

say 'server'
port=0  # any free one
if [ -n "$serve" ]; then
  port=8080
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; then
    echo "port $port is taken, taking another"
    port=0
  fi
fi
: > "$work/server.out"  # to be read before the server has opened it
"$server_program" serve --model "$model" --port "$port" > "$work/server.out" 2> "$work/server.err" &
server=$!
for ((i = 0; ; ++i)); do
  url=$(sed -n 's/^listening on \(http:.*\)/\1/p' "$work/server.out")
  [ -z "$url" ] || ! curl -sf -m 5 -o /dev/null "$url/health" || break
  kill -0 "$server" 2> /dev/null || { cat "$work/server.err"; server=; fail 'the server ended while it started; its words are above.'; }
  [ "$i" -lt 1200 ] || fail 'the server was not ready after two minutes.'
  sleep 0.1
done
cat "$work/server.err"
echo "ready at $url"

# The first invoice of the held-out documents, which the model has never seen, with the answer it should give.
jq -s 'map(select(.task == "invoice" and (.enable_thinking | not)))[0]' "$model/eval/heldout.jsonl" > "$work/document.json"
name=$(curl -sf "$url/v1/models" | jq -r '.data[0].id')
jq --arg model "$name" --argjson k "$k" '{
  model: $model, temperature: 0, stream: true, stream_options: {include_usage: true}, speculative: {k: $k},
  chat_template_kwargs: {enable_thinking: .enable_thinking},
  messages: [{role: "system", content: (.system // empty)}, {role: "user", content: .user}]
}' "$work/document.json" > "$work/request.json"

say 'document'
jq -r .user "$work/document.json"
say 'answer, as it streams'
curl -sSN -m 300 -H 'Content-Type: application/json' -d @"$work/request.json" "$url/v1/chat/completions" |
  tee "$work/stream" | sed -un 's/^data: \({.*\)/\1/p' | jq -rj --unbuffered '.choices[0].delta.content // empty'
echo
grep -q '^data: \[DONE\]' "$work/stream" || { cat "$work/stream"; fail 'the stream did not end with [DONE].'; }
sed -n 's/^data: \({.*\)/\1/p' "$work/stream" | jq -s . > "$work/chunks.json"

say 'check'
jq -r '[.[].choices[0].delta.content // empty] | join("")' "$work/chunks.json" > "$work/answer.json"
jq -e . "$work/answer.json" > /dev/null || fail 'the answer is no JSON.'
jq -e --slurpfile answer "$work/answer.json" '$answer == [.expected]' "$work/document.json" > /dev/null ||
  { jq .expected "$work/document.json"; fail 'the answer is JSON, but not the expected object, which is above.'; }
echo 'the answer is JSON and equals the expected object'
jq -r 'map(select(.timings)) | last | "\(.timings.predicted_n) tokens, \(.timings.predicted_per_second | round) tok/s, " +
  "tau \(.speculative.tau * 100 | round / 100) tokens per round at k = \(.speculative.k)"' "$work/chunks.json"

if [ -n "$serve" ]; then
  say "the server stays at $url (Ctrl-C ends it)"
  # In the words of its training documents: the demo model knows nothing else.
  prompt='Extract the values from the following text as JSON:\nName: Ada Byron\nCompany: Engine Works\nPhone: 555 0199\nEmail: ada@engine.org\nCity: London'
  cat << END
curl $url/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "model": "$name", "temperature": 0, "chat_template_kwargs": {"enable_thinking": false},
  "messages": [{"role": "user", "content": "$prompt"}]}'

# Python, with the package openai
from openai import OpenAI
client = OpenAI(base_url="$url/v1", api_key="none")
reply = client.chat.completions.create(
    model="$name", temperature=0,
    extra_body={"speculative": {"k": $k}, "chat_template_kwargs": {"enable_thinking": False}},
    messages=[{"role": "user", "content": "$prompt"}])
print(reply.choices[0].message.content)
END
  wait "$server" || { code=$?; server=; fail "the server ended with exit code $code."; }
  server=
  exit 0
fi

say 'stop'
stop_server || fail "the server ended with exit code $?."
echo 'the server stopped cleanly'

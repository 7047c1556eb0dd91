// SPDX-License-Identifier: Apache-2.0
#include "bench/load_server.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "api/handler.hpp"
#include "http/server.hpp"
#include "test/support/byte_tokenizer.hpp"
#include "test/support/scripted_service.hpp"

namespace qwen38::bench {
namespace {

/// A line `name: value kB` of /proc/PID/status.
long status_kib(pid_t process, std::string_view name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stol(line.substr(name.size()));
  }
  throw std::runtime_error("the server under load has ended");
}

std::uint16_t read_port(int from) {
  std::string text;
  std::array<char, 16> buffer{};
  while (!text.ends_with('\n')) {
    auto const size = ::read(from, buffer.data(), buffer.size());
    if (size <= 0) throw std::runtime_error("the server under load did not start");
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return static_cast<std::uint16_t>(std::stoi(text));
}

}  // namespace

void run_load_server(load_server_options const& wanted) {
  test::scripted_service engine(
      [&](engine::request const&) {
        test::script out;
        for (int i = 0; i < wanted.tokens; ++i)
          out.steps.push_back(test::content_delta(load_token));
        return out;
      },
      {.lanes = wanted.lanes,
       .queue = wanted.queue,
       .step = std::chrono::milliseconds(wanted.interval_ms)});
  auto const tokenizer = test::make_byte_tokenizer();
  api::settings served;
  served.model_id = "load";
  api::handler const requests(engine, tokenizer, served);
  http::options listening;
  listening.port = 0;
  http::server server(requests, listening);
  std::printf("%d\n", int{server.port()});
  std::fflush(stdout);
  std::jthread const running([&] { server.run(); });
  while (std::getchar() != EOF) {
  }
  server.stop();
}

load_process::load_process(load_server_options const& wanted) {
  std::array<int, 2> to_child{};
  std::array<int, 2> from_child{};
  if (::pipe(to_child.data()) != 0 || ::pipe(from_child.data()) != 0)
    throw std::runtime_error("no pipes for the server under load");
  std::array<std::string, 10> words = {"qwen38_http_load", "--serve",
                                       "--lanes",          std::to_string(wanted.lanes),
                                       "--queue",          std::to_string(wanted.queue),
                                       "--tokens",         std::to_string(wanted.tokens),
                                       "--interval-ms",    std::to_string(wanted.interval_ms)};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(from_child[1], STDOUT_FILENO);
    for (int const end : {to_child[0], to_child[1], from_child[0], from_child[1]}) ::close(end);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  input_ = to_child[1];
  port_ = process_ > 0 ? read_port(from_child[0])
                       : throw std::runtime_error("the server under load cannot be started");
  ::close(from_child[0]);
}

load_process::~load_process() {
  ::close(input_);
  ::waitpid(process_, nullptr, 0);
}

long load_process::resident_kib() const {
  return status_kib(process_, "VmRSS:");
}
long load_process::peak_resident_kib() const {
  return status_kib(process_, "VmHWM:");
}

}  // namespace qwen38::bench

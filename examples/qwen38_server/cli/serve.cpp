// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "api/handler.hpp"
#include "cli/load.hpp"
#include "cli/profile.hpp"
#include "cli/startup_gate.hpp"
#include "cli/subcommands.hpp"
#include "http/server.hpp"

namespace qwen38::cli {
namespace {

constexpr char const* key_variable = "QWEN38_API_KEY";

struct serve_flags {
  model_flags model;
  http::options http;
  std::string name;
  std::vector<std::string> aliases;
  std::string request_log;
  bool accept_any_model = false;
  startup_options startup;
  std::int64_t max_tokens = 4096;
  std::size_t queue_limit = 64;
  std::int64_t queue_timeout_s = 0;
  std::int64_t request_timeout_s = 0;
  int drain_timeout_s = 30;
  int stall_limit_s = 60;
  std::string profile;  ///< "": none
};

/// Sets what no flag of its own has set, and says so.
void apply_profile(CLI::App const& command, serve_flags& flags) {
  serving_profile const& of = find_profile(flags.profile);
  auto const is_given = [&](char const* name) { return command.get_option(name)->count() > 0; };
  if (!is_given("--lanes")) flags.model.lanes = of.lanes;
  if (!is_given("--context")) flags.model.default_context = of.context;
  if (!is_given("--k")) flags.startup.depth = {of.draft_tokens, false};
  if (!is_given("--prefix-cache-mib")) flags.model.prefix_cache_mib = of.prefix_cache_mib;
  spdlog::info(
      "profile {} ({}): --lanes {}, --context {} or the model's limit, --k {}, "
      "--prefix-cache-mib {}",
      of.name, of.what, flags.model.lanes,
      flags.model.context > 0 ? flags.model.context : flags.model.default_context,
      flags.startup.depth.name(), flags.model.prefix_cache_mib);
}

// SIGHUP has come, and the request log has not yet opened its file again.
std::atomic<bool> hangup = false;
static_assert(decltype(hangup)::is_always_lock_free);

extern "C" void on_hangup(int /*signal*/) {
  hangup = true;
}

/// Null without --request-log.
std::shared_ptr<api::request_log> open_request_log(serve_flags const& flags) {
  if (flags.request_log.empty()) return nullptr;
  auto const complain = [](std::string const& what) { spdlog::error("{}", what); };
  auto log = std::make_shared<api::request_log>(api::request_log::options{
      .path = flags.request_log, .on_fault = complain, .reopen = &hangup});
  std::signal(SIGHUP, on_hangup);
  return log;
}

engine::engine_options engine_options_of(serve_flags const& flags) {
  engine::engine_options options;
  options.queue_limit = flags.queue_limit;
  options.queue_timeout = std::chrono::seconds(flags.queue_timeout_s);
  options.request_timeout = std::chrono::seconds(flags.request_timeout_s);
  return options;
}

api::settings settings_of(serve_flags const& flags, loaded_model const& loaded) {
  checkpoint::generation_config const& config = loaded.generation;
  api::settings served;
  served.model_id = flags.name.empty() ? loaded.name : flags.name;
  served.aliases = flags.aliases;
  served.accept_any_model = flags.accept_any_model;
  served.created = static_cast<std::int64_t>(std::time(nullptr));
  for (std::int64_t id : config.eos_token_ids)
    served.eos_ids.push_back(static_cast<std::int32_t>(id));
  served.defaults.sampling = default_sampling(config);
  served.launches = [&loaded] {
    std::vector<api::launch_count> out;
    for (ops::route_count const& one : routes_of(loaded)) out.push_back({one.route, one.launches});
    return out;
  };
  served.stall_limit = std::chrono::seconds(flags.stall_limit_s);
  served.defaults.max_tokens = flags.max_tokens;
  served.defaults.chat_format = loaded.chat_format;
  bool const drafts = loaded.model->get_limits().has_mtp;
  served.defaults.draft_tokens = drafts ? flags.startup.depth.most : 0;
  served.defaults.chooses_depth = drafts && flags.startup.depth.is_chosen;
  return served;
}

/// What requests are served with, once it is loaded.
struct served_model {
  std::shared_ptr<api::request_log> log;
  loaded_model loaded;
  std::unique_ptr<engine::engine> engine;
  std::optional<api::handler> requests;

  void load(serve_flags const& flags) {
    model_flags wanted = flags.model;
    wanted.measures_rounds = true;  // any request may ask for k auto
    loaded = cli::load(wanted);
    engine = start_engine(loaded, engine_options_of(flags));
    auto served = settings_of(flags, loaded);
    served.startup_report = pass_startup_gate(loaded, *engine, flags.model, flags.startup);
    served.log = log;
    requests.emplace(*engine, *loaded.tokenizer, std::move(served));
  }
};

int serve(serve_flags flags) {
  if (char const* const key = std::getenv(key_variable);
      key != nullptr && flags.http.api_key.empty()) {
    flags.http.api_key = key;
  }
  flags.http.stop_on_signals = true;
  flags.http.drain_timeout = std::chrono::seconds(flags.drain_timeout_s);
  served_model model;  // outlives the server
  model.log = open_request_log(flags);
  http::server server(flags.http);
  auto const url = "http://" + flags.http.address + ':' + std::to_string(server.port());
  spdlog::info("{} answers 503 until the model is loaded", url);

  std::promise<void> ended;
  auto loaded = ended.get_future();
  std::jthread const loader([&] {
    try {
      model.load(flags);
      server.begin_serving(*model.requests);
      std::cout << "listening on " << url << std::endl;
      ended.set_value();
    } catch (...) {
      ended.set_exception(std::current_exception());
      server.stop();
    }
  });
  server.run();
  if (loaded.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    spdlog::info("stopped while the model was being loaded");
    std::quick_exit(0);  // a load cannot be interrupted, and leaves nothing behind
  }
  loaded.get();  // throws what ended the load
  spdlog::info("stopped");
  return 0;
}

}  // namespace

void add_serve(CLI::App& app, action& chosen) {
  auto const flags = std::make_shared<serve_flags>();
  CLI::App* const command = app.add_subcommand("serve", "OpenAI-compatible HTTP endpoint");
  add_model_flags(*command, flags->model);
  command
      ->add_option("--address", flags->http.address, "Numeric address to listen on, or localhost")
      ->capture_default_str();
  command->add_option("--port", flags->http.port, "Port; 0: any free one")->capture_default_str();
  command->add_option(
      "--api-key", flags->http.api_key,
      "Bearer token that clients must send (also from the environment: QWEN38_API_KEY)");
  command->add_flag(
      "--allow-remote", flags->http.allow_remote,
      "Consent to an address that other machines reach; needs an API key or --insecure");
  command->add_flag("--insecure", flags->http.insecure,
                    "Consent to such an address without an API key");
  command->add_option("--name", flags->name,
                      "Model id in /v1/models; default: the directory's name");
  command->add_option("--alias", flags->aliases, "Further names of the model; may be repeated");
  command->add_flag("--accept-any-model", flags->accept_any_model,
                    "Serve whatever a request's `model` says");
  auto* const depth =
      add_depth_flag(*command, flags->startup.depth, "MTP draft depth of requests that name none");
  command->add_option("--report", flags->startup.report,
                      "Write what the start-up checks found to this file, as JSON");
  command->add_flag("--allow-emulated", flags->startup.allow_emulated,
                    "Serve although the GPU lacks the kernels' matrix instruction, slowly");
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Longest answer of requests that name no limit")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--queue", flags->queue_limit, "Requests that may wait for a lane; beyond: 429")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command
      ->add_option("--queue-timeout", flags->queue_timeout_s,
                   "Seconds a request may wait for a lane; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--request-timeout", flags->request_timeout_s,
                   "Seconds a request may take in all; 0: no limit")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  add_prefix_cache_flag(*command, flags->model, 1024);
  command
      ->add_option("--drain-timeout", flags->drain_timeout_s,
                   "Seconds that running answers get after SIGTERM; a second SIGTERM ends them")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
  command
      ->add_option("--stall-limit", flags->stall_limit_s,
                   "Seconds without progress after which /health?deep=1 says `stalled`")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  command->add_option("--request-log", flags->request_log,
                      "File to which a JSON line is appended for each request, without any text of "
                      "prompt or answer; SIGHUP opens it again");
  auto* const profile =
      command
          ->add_option("--profile", flags->profile,
                       "Lanes, context, draft depth and prefix cache for a use: general, "
                       "long or extract; flags of their own go before")
          ->check(CLI::IsMember({"general", "long", "extract"}));
  command->callback([flags, command, profile, depth, &chosen] {
    flags->startup.depth_was_given = depth->count() > 0;
    if (profile->count() > 0) apply_profile(*command, *flags);
    chosen = [flags] { return serve(*flags); };
  });
}

}  // namespace qwen38::cli

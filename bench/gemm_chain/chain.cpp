// SPDX-License-Identifier: Apache-2.0
#include "gemm_chain/chain.hpp"

#include "support/arguments.hpp"
#include "support/text.hpp"

namespace qpn::bench::chain {

std::vector<layer> layers() {
  std::vector<layer> made;
  for (int const tp : {1, 4}) {
    std::string const prefix = "tp" + std::to_string(tp) + ".";
    auto const shape = [&](char const* name) { return shape_named(prefix + name); };
    made.push_back(
        {"gdn", tp, {shape("gdn_in"), shape("gdn_out"), shape("gate_up"), shape("down")}});
    made.push_back(
        {"attention", tp, {shape("attn_qkv"), shape("attn_o"), shape("gate_up"), shape("down")}});
  }
  return made;
}

options parse(int argc, char const* const* argv) {
  options chosen;
  argument_reader arguments(argc, argv);
  while (arguments.next()) {
    std::string_view const name = arguments.name();
    if (name == "--help") {
      chosen.help = true;
    } else if (name == "--m") {
      chosen.m = arguments.integers(1, 65535);
    } else if (name == "--replays") {
      chosen.replays = arguments.integer(1, 10'000);
    } else if (name == "--json") {
      chosen.json_file = arguments.value();
    } else {
      arguments.refuse();
    }
  }
  return chosen;
}

std::string json_of(std::vector<measured_chain> const& rows, run_context const& context) {
  using json = nlohmann::ordered_json;
  std::vector<json> objects;
  for (measured_chain const& row : rows) {
    json object;
    object["layer"] = row.layer;
    object["tp"] = row.tp;
    object["m"] = row.m;
    object["pdl_us"] = row.pdl_us ? json(json_us(*row.pdl_us)) : json();
    object["plain_us"] = json_us(row.plain_us);
    object["sum_read_us"] = json_us(row.sum_read_us);
    object["routes"] = row.routes;
    add_context(context, object);
    objects.push_back(object);
  }
  return array_text(objects);
}

std::string markdown_of(std::vector<measured_chain> const& rows, run_context const& context) {
  std::string text = bench::markdown_of(context) +
                     "\n| layer | TP | m | plain us | PDL us | sum of reads us | plain / reads | "
                     "PDL / reads |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (measured_chain const& row : rows) {
    text += "| " + row.layer + " | " + std::to_string(row.tp) + " | " + std::to_string(row.m) +
            " | " + fixed(row.plain_us, 2) + " | " + (row.pdl_us ? fixed(*row.pdl_us, 2) : "-") +
            " | " + fixed(row.sum_read_us, 2) + " | " + fixed(row.plain_us / row.sum_read_us, 2) +
            " | " + (row.pdl_us ? fixed(*row.pdl_us / row.sum_read_us, 2) : "-") + " |\n";
  }
  return text;
}

}  // namespace qpn::bench::chain

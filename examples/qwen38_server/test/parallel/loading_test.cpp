// SPDX-License-Identifier: Apache-2.0
// What each rank has loaded, number by number and byte by byte, against the model that is whole.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <qpn/packed_weight.hpp>

#include "checkpoint_fixture.hpp"
#include "model/weights.hpp"
#include "ops/cpu/context.hpp"
#include "ops/cpu/cpu_backend.hpp"
#include "tiny_model.hpp"

namespace qwen38::parallel {
namespace {

using checkpoint::model_config;
using checkpoint::test::checkpoint_fixture;
using checkpoint::test::temp_directory;

constexpr char const* tiny_directory = "../model/golden/tiny";
constexpr char const* demo_directory = "../../demo_model";

enum class cut { whole, rows, columns };
enum class content { values, bytes };  ///< what is wanted of matrices

/// One loaded matrix or vector, decoded.
struct table {
  std::string name;
  cut how;
  std::vector<std::int64_t> segments;  ///< rows of each fused part
  std::int64_t k;
  std::vector<float> values;  ///< [all segments' rows, k]
  qpn::format_id format;
  std::size_t packed_bytes;  ///< 0 for constants

  [[nodiscard]] std::int64_t n() const {
    return std::accumulate(segments.begin(), segments.end(), std::int64_t{0});
  }
};

/// Everything of one rank; extents are those that `c`, the rank's share of the model, should have.
class decoder {
 public:
  decoder(model::model_weights const& weights, ops::backend& backend, model_config const& c,
          content wanted)
      : backend_(backend), c_(c), wanted_(wanted) {
    std::int64_t const h = c.hidden_size;
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
      layer("layer " + std::to_string(i) + " ", weights.layers[i], qpn::format_id::nvfp4,
            qpn::format_id::fp8);
    }
    constants("norm", cut::whole, {h}, 1, *weights.norm);
    linear("head", cut::rows, {c.vocab_size}, h, *weights.head, qpn::format_id::nvfp4);
    model::mtp_weights const& mtp = weights.mtp.value();
    constants("mtp embedding norm", cut::whole, {h}, 1, *mtp.embedding_norm);
    constants("mtp hidden norm", cut::whole, {h}, 1, *mtp.hidden_norm);
    constants("mtp norm", cut::whole, {h}, 1, *mtp.norm);
    linear("mtp fc", cut::whole, {h}, 2 * h, *mtp.fc, qpn::format_id::dense16);
    layer("mtp ", mtp.layer, qpn::format_id::dense16, qpn::format_id::dense16);
  }

  std::vector<table> tables;

 private:
  /// Columns of W are its products with unit vectors: one product with 1 and zeros, hence exact up
  /// to the one rounding of code times scale.
  void linear(std::string const& name, cut how, std::vector<std::int64_t> const& segments,
              std::int64_t k, ops::linear const& w, qpn::format_id format) {
    table t{name, how, segments, k, {}, format, w.resident_bytes()};
    ASSERT_EQ(w.n(), t.n()) << name;
    ASSERT_EQ(w.k(), k) << name;
    if (wanted_ == content::values) t.values = product_with_units(w);
    tables.push_back(std::move(t));
  }

  std::vector<float> product_with_units(ops::linear const& w) {
    constexpr std::int64_t batch = 96;
    ops::tensor units;
    ops::tensor product;
    auto const units_memory = backend_.make_tensor(ops::row_kind::activation, batch, w.k(), units);
    auto const product_memory = backend_.make_tensor(ops::row_kind::stream, batch, w.n(), product);
    std::vector<float> columns(static_cast<std::size_t>(batch * w.n()));
    std::vector<float> values(static_cast<std::size_t>(w.n() * w.k()));
    for (std::int64_t first = 0; first < w.k(); first += batch) {
      std::int64_t const count = std::min(batch, w.k() - first);
      for (std::int64_t i = 0; i < count; ++i) ops::cpu::row(units, i)[first + i] = 1;
      ops::tensor const result = product.slice_rows(0, count);
      backend_.matmul(w, units.slice_rows(0, count), result, false);
      backend_.read(result, columns);
      for (std::int64_t i = 0; i < count; ++i) {
        ops::cpu::row(units, i)[first + i] = 0;
        for (std::int64_t r = 0; r < w.n(); ++r) {
          values[static_cast<std::size_t>(r * w.k() + first + i)] =
              columns[static_cast<std::size_t>(i * w.n() + r)];
        }
      }
    }
    return values;
  }

  void constants(std::string const& name, cut how, std::vector<std::int64_t> const& segments,
                 std::int64_t k, ops::constants const& values) {
    table t{name, how, segments, k, {}, qpn::format_id::dense16, 0};
    ASSERT_EQ(values.size(), t.n() * k) << name;
    float const* const first = ops::cpu::values(values);
    t.values.assign(first, first + values.size());
    tables.push_back(std::move(t));
  }

  void layer(std::string const& name, model::layer_weights const& w, qpn::format_id mlp,
             qpn::format_id projections) {
    std::int64_t const h = c_.hidden_size;
    constants(name + "input norm", cut::whole, {h}, 1, *w.input_norm);
    constants(name + "post norm", cut::whole, {h}, 1, *w.post_norm);
    std::int64_t const columns = c_.intermediate_size;
    linear(name + "gate up", cut::rows, {columns, columns}, h, *w.mlp.gate_up, mlp);
    linear(name + "down", cut::columns, {h}, columns, *w.mlp.down, mlp);
    if (auto const* const full = std::get_if<model::attention_weights>(&w.mixer)) {
      std::int64_t const q = c_.q_proj_rows();
      std::int64_t const kv = c_.kv_dim();
      if (full->q_gate_kv) {
        linear(name + "q gate kv", cut::rows, {q, kv, kv}, h, *full->q_gate_kv, projections);
      } else {
        linear(name + "q gate", cut::rows, {q}, h, *full->q_gate, projections);
        linear(name + "kv", cut::rows, {kv, kv}, h, *full->kv, projections);
      }
      linear(name + "o", cut::columns, {h}, c_.attention_dim(), *full->out, projections);
      constants(name + "q norm", cut::whole, {c_.head_dim}, 1, *full->q_norm);
      constants(name + "k norm", cut::whole, {c_.head_dim}, 1, *full->k_norm);
      return;
    }
    auto const& gdn = std::get<model::gdn_layer_weights>(w.mixer);
    std::int64_t const key = c_.linear_key_dim();
    std::int64_t const value = c_.linear_value_dim();
    std::int64_t const heads = c_.linear_num_value_heads;
    linear(name + "qkvz", cut::rows, {key, key, value, value}, h, *gdn.qkvz, projections);
    linear(name + "ba", cut::rows, {heads, heads}, h, *gdn.ba, qpn::format_id::dense16);
    linear(name + "out", cut::columns, {h}, value, *gdn.out, projections);
    constants(name + "conv", cut::rows, {key, key, value}, c_.conv_kernel, *gdn.conv);
    constants(name + "A_log", cut::rows, {heads}, 1, *gdn.a_log);
    constants(name + "dt_bias", cut::rows, {heads}, 1, *gdn.dt_bias);
    constants(name + "gdn norm", cut::whole, {c_.linear_value_head_dim}, 1, *gdn.norm);
  }

  ops::backend& backend_;
  model_config const& c_;
  content const wanted_;
};

struct loaded_rank {
  std::vector<table> tables;
  std::vector<float> embedding;
  std::size_t packed_bytes = 0;
};

/// The extents of one rank, stated apart from the code under test.
model_config share_of(model_config c, std::int64_t size) {
  c.num_attention_heads /= size;
  c.num_kv_heads /= size;
  c.linear_num_key_heads /= size;
  c.linear_num_value_heads /= size;
  c.intermediate_size /= size;
  c.vocab_size /= size;
  return c;
}

std::vector<float> embedding_rows(ops::backend& backend, ops::embedding const& table,
                                  model_config const& c) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(c.vocab_size));
  std::iota(ids.begin(), ids.end(), 0);
  auto const pass = backend.make_pass({c.vocab_size, 0, 0, 0});
  backend.set_pass(*pass, {.ids = ids});
  ops::tensor rows;
  auto const memory = backend.make_tensor(ops::row_kind::stream, c.vocab_size, c.hidden_size, rows);
  backend.embed(table, *pass, {}, rows);
  std::vector<float> values(static_cast<std::size_t>(c.vocab_size * c.hidden_size));
  backend.read(rows, values);
  return values;
}

loaded_rank load_rank(std::filesystem::path const& directory, int rank, int size, content wanted) {
  checkpoint::repository files(directory);
  model_config const config = checkpoint::load_model_config(directory);
  auto const backend = ops::cpu::make_backend(1);
  auto const weights = model::load_weights(files, config, shard_plan(config, size), rank, *backend,
                                           {.self_check = true});
  return {decoder(weights, *backend, share_of(config, size), wanted).tables,
          embedding_rows(*backend, *weights.embedding, config), weights.packed_bytes};
}

std::vector<loaded_rank> load_ranks(std::filesystem::path const& directory, int size,
                                    content wanted) {
  std::vector<loaded_rank> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(load_rank(directory, rank, size, wanted));
  return ranks;
}

/// Elements of `part`, rank's table, that differ from the whole matrix.
std::int64_t differences(table const& part, table const& whole, std::int64_t rank) {
  std::int64_t count = 0;
  std::int64_t local = 0;
  std::int64_t whole_first = 0;
  for (std::size_t j = 0; j < part.segments.size(); ++j) {
    std::int64_t const skipped = part.how == cut::rows ? rank * part.segments[j] : 0;
    for (std::int64_t r = 0; r < part.segments[j]; ++r, ++local) {
      std::int64_t const first =
          (whole_first + skipped + r) * whole.k + (part.how == cut::columns ? rank * part.k : 0);
      for (std::int64_t i = 0; i < part.k; ++i) {
        float const got = part.values.at(static_cast<std::size_t>(local * part.k + i));
        if (got != whole.values.at(static_cast<std::size_t>(first + i))) ++count;
      }
    }
    whole_first += whole.segments[j];
  }
  return count;
}

void expect_slices(std::filesystem::path const& directory, int size) {
  loaded_rank const whole = load_rank(directory, 0, 1, content::values);
  auto const ranks = load_ranks(directory, size, content::values);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ASSERT_EQ(ranks[rank].tables.size(), whole.tables.size());
    EXPECT_EQ(ranks[rank].embedding, whole.embedding);
    for (std::size_t i = 0; i < whole.tables.size(); ++i) {
      table const& part = ranks[rank].tables[i];
      ASSERT_EQ(part.values.size() * (part.how == cut::whole ? 1 : ranks.size()),
                whole.tables[i].values.size())
          << part.name;
      EXPECT_EQ(differences(part, whole.tables[i], static_cast<std::int64_t>(rank)), 0)
          << part.name << " of rank " << rank << " of " << size;
    }
  }
}

TEST(sharded_loading, nvfp4_fp8_and_dense_slices_are_those_of_the_whole_bit_by_bit) {
  expect_slices(tiny_directory, 2);
}

/// Replaces the scale of every FP8 weight by a table of the shape that its own shape gives, no two
/// elements alike; how many elements there are.
int replace_fp8_scales(
    checkpoint_fixture& f, std::string const& suffix,
    std::function<std::vector<std::int64_t>(std::vector<std::int64_t> const&)> const& table_of) {
  int count = 0;
  for (auto const& [name, tensor] : std::map(f.tensors)) {
    if (tensor.dtype != checkpoint::storage_dtype::f8_e4m3 || !name.ends_with(".weight")) continue;
    f.erase(name + "_scale");
    std::vector<std::int64_t> const shape = table_of(tensor.shape);
    f.add_filled(name + suffix, checkpoint::storage_dtype::f32, shape, 0.0F);
    for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i, ++count) {
      float const value = 0.001F + 1e-6F * static_cast<float>(count);
      std::memcpy(f.tensors.at(name + suffix).bytes.data() + 4 * i, &value, sizeof value);
    }
  }
  return count;
}

TEST(sharded_loading, fp8_slices_keep_the_scales_of_their_channels) {
  checkpoint_fixture f = checkpoint::test::read_checkpoint(tiny_directory);
  ASSERT_GT(replace_fp8_scales(f, "_scale",
                               [](auto const& shape) {
                                 return std::vector<std::int64_t>{shape[0], 1};
                               }),
            5000);
  temp_directory const dir;
  f.write(dir.path());
  expect_slices(dir.path(), 2);
}

TEST(sharded_loading, fp8_slices_keep_the_scales_of_their_blocks) {
  checkpoint_fixture f = checkpoint::test::read_checkpoint(tiny_directory);
  ASSERT_GT(replace_fp8_scales(
                f, "_scale_inv",
                [](auto const& shape) {
                  return std::vector<std::int64_t>{(shape[0] + 127) / 128, (shape[1] + 127) / 128};
                }),
            50);
  temp_directory const dir;
  f.write(dir.path());
  expect_slices(dir.path(), 2);
}

TEST(sharded_loading, a_tied_head_is_the_rank_s_rows_of_the_embedding) {
  checkpoint_fixture f = checkpoint::test::read_checkpoint(tiny_directory);
  f.config["tie_word_embeddings"] = true;
  f.config["text_config"]["tie_word_embeddings"] = true;
  for (auto const& [name, tensor] : std::map(f.tensors)) {
    if (name.starts_with("lm_head")) f.erase(name);
  }
  temp_directory const dir;
  f.write(dir.path());
  expect_slices(dir.path(), 2);
}

/// The bytes that a matrix of these extents takes, by the layout's arithmetic alone.
qpn::packed_layout layout_of(table const& t) {
  auto const scales =
      t.format == qpn::format_id::dense16 ? qpn::scale_mode::none : qpn::scale_mode::tensor;
  qpn::packed_layout layout;
  EXPECT_TRUE(qpn::make_packed_layout(t.format, scales, t.n(), t.k, qpn::dtype::bf16, layout).ok());
  return layout;
}

TEST(sharded_loading, each_rank_holds_the_bytes_of_its_slices_and_no_more) {
  struct test_case {
    char const* directory;
    int size;
  };
  for (auto const& [directory, size] :
       {test_case{tiny_directory, 2}, {demo_directory, 2}, {demo_directory, 4}}) {
    SCOPED_TRACE(std::string(directory) + " over " + std::to_string(size));
    loaded_rank const whole = load_rank(directory, 0, 1, content::bytes);
    auto const ranks = load_ranks(directory, size, content::bytes);
    int divided = 0;
    for (loaded_rank const& rank : ranks) {
      std::size_t expected = 0;
      for (std::size_t i = 0; i < rank.tables.size(); ++i) {
        table const& part = rank.tables[i];
        if (part.packed_bytes == 0) continue;
        qpn::packed_layout const own = layout_of(part);
        qpn::packed_layout const all = layout_of(whole.tables[i]);
        EXPECT_EQ(part.packed_bytes, static_cast<std::size_t>(own.total_bytes)) << part.name;
        expected += static_cast<std::size_t>(own.total_bytes);
        if (part.how == cut::whole) {
          EXPECT_EQ(own, all) << part.name;
        } else if (part.n() % qpn::tile_n == 0 && part.k % 16 == 0) {
          // Where tiles divide, the ranks' codes and block scales are those of the whole.
          EXPECT_EQ(size * own.scales_offset, all.scales_offset) << part.name;
          ++divided;
        } else {
          EXPECT_NE(part.name.find("ba"), std::string::npos) << part.name << " is padded";
        }
      }
      EXPECT_EQ(rank.packed_bytes, expected);
    }
    EXPECT_GT(divided, 0);
  }
}

}  // namespace
}  // namespace qwen38::parallel

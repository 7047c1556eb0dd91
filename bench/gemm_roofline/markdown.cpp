// SPDX-License-Identifier: Apache-2.0
#include "gemm_roofline/report.hpp"
#include "support/text.hpp"

namespace qpn::bench::roofline {

namespace {

std::string row_text(measured_row const& row) {
  std::string const cublas = row.cublas_us ? fixed(*row.cublas_us, 2) : "-";
  std::string const of_cublas = row.cublas_us ? fixed(row.us / *row.cublas_us, 2) : "-";
  return "| " + std::string(row.shape.name) + " | " + to_string(row.shape.format) + " | " +
         std::to_string(row.shape.n) + " x " + std::to_string(row.shape.k) + " | " +
         fixed(static_cast<double>(row.bytes) * 1e-6, 1) + " | " + std::to_string(row.m) + " | " +
         fixed(row.us, 2) + " | " + fixed(row.read_us, 2) + " | " + fixed(row.us / row.read_us, 2) +
         " | " + fixed(row.gb_s(), 0) + " | " + cublas + " | " + of_cublas + " | " + row.route +
         (row.x == x_order::rows ? "" : ", x in fragment order") + " |\n";
}

}  // namespace

std::string markdown_of(report const& measured) {
  std::string text = bench::markdown_of(measured.context) + "- cuBLAS: " + measured.cublas + "\n";
  if (!measured.reads.empty()) {
    text += "\n| MB | read us | GB/s |\n| --- | --- | --- |\n";
    for (measured_read const& read : measured.reads) {
      text += "| " + std::to_string(read.megabytes) + " | " + fixed(read.us, 2) + " | " +
              fixed(read.gb_s(), 0) + " |\n";
    }
  }
  if (!measured.rows.empty()) {
    text +=
        "\n| shape | format | n x k | MB | m | us | read us | us / read | GB/s | cuBLAS us | us / "
        "cuBLAS | route |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for (measured_row const& row : measured.rows) text += row_text(row);
  }
  if (!measured.skipped.empty()) text += "\nNot measured:\n\n";
  for (std::string const& sentence : measured.skipped) text += "- " + sentence + "\n";
  return text;
}

}  // namespace qpn::bench::roofline

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "constants.hpp"
#include "predecessor.hpp"

namespace qpn::bench::v100 {

/// What fit_constants found, to be looked up without the search.
inline constexpr fitted_constants fitted{3.48, 15.3};

/// Microseconds of all its shapes together.
[[nodiscard]] double model_timing(published_timing const& timing,
                                  fitted_constants const& constants);

/// Root mean square of log(modelled / published) over the timings of the fit, or those held out.
[[nodiscard]] double log_error(std::span<published_timing const> timings, bool in_fit,
                               fitted_constants const& constants);

/// The constants with the least error over the timings of the fit: a search on ever finer grids,
/// the same on every machine, rounded to 3 digits.
[[nodiscard]] fitted_constants fit_constants(std::span<published_timing const> timings);

}  // namespace qpn::bench::v100

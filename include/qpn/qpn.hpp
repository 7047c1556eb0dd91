// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything of qpn that a plain C++17 compiler takes. Code that needs one part includes that part.

#include "qpn/candidates.hpp"
#include "qpn/config.hpp"
#include "qpn/cpu/gemm.hpp"
#include "qpn/cpu/isa.hpp"
#include "qpn/cpu/thread_pool.hpp"
#include "qpn/device_info.hpp"
#include "qpn/dtype.hpp"
#include "qpn/format.hpp"
#include "qpn/gemm_choice.hpp"
#include "qpn/gemm_route.hpp"
#include "qpn/gemm_types.hpp"
#include "qpn/packed_weight.hpp"
#include "qpn/prepack.hpp"
#include "qpn/prepack_report.hpp"
#include "qpn/quantize.hpp"
#include "qpn/reference/dequant.hpp"
#include "qpn/reference/gemm.hpp"
#include "qpn/status.hpp"
#include "qpn/version.hpp"
#include "qpn/workspace.hpp"
#include "qpn/x_fragments.hpp"

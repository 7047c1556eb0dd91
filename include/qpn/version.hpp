// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The only place where the version is written; CMake reads it from here.
#define QPN_VERSION_MAJOR 0
#define QPN_VERSION_MINOR 1
#define QPN_VERSION_PATCH 0
#define QPN_VERSION_STRING "0.1.0"

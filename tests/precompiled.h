// What most tests include, compiled once for all of them, as common/precompiled.h is for the
// programs.

#ifndef LEEWAY_TESTS_PRECOMPILED_H_
#define LEEWAY_TESTS_PRECOMPILED_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/precompiled.h"

#endif  // LEEWAY_TESTS_PRECOMPILED_H_

// Bounded exhaustive workloads, in the manner of B3/ACE ("Finding Crash-Consistency Bugs with Bounded Black-Box Crash
// Testing", OSDI'18): every sequence of few calls on a small tree. Each call of the alphabet names what it acts on; a
// sequence in which one of them makes no sense (a name that is not there) is skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulator/model.h"

namespace elidefs::simulator {

// What every sequence begins with: a file of two and a half blocks and a link to it, a directory with a file, an empty
// directory.
std::vector<Operation> SmallTree();

// The number of calls there are to choose from.
uint64_t AlphabetSize();
// How many sequences of `length` calls there are, those that make no sense included.
uint64_t SequenceCount(uint32_t length);
// That with the given number, to follow on SmallTree(); nothing if it makes no sense.
std::optional<std::vector<Operation>> Sequence(uint32_t length, uint64_t number);

}  // namespace elidefs::simulator

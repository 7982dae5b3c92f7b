// How our processes are told to stop: SIGINT, SIGTERM, or the end of standard
// input when the program that started them has gone. And how many files they may open.
#ifndef LEEWAY_COMMON_PROCESS_H_
#define LEEWAY_COMMON_PROCESS_H_

#include <cstdint>
#include <functional>

namespace leeway {

// Exit code of leeway-client when the server has said that the run failed.
inline constexpr int kRunFailedCode = 3;

// Call first in main, before any thread starts, so that all threads inherit it.
void BlockTerminationSignals();

// Calls `stop` once, from a thread of its own (which lives as long as the
// process), at the first SIGINT or SIGTERM or, with `watch_stdin`, when standard
// input ends. A second signal exits at once.
void OnTermination(bool watch_stdin, std::function<void()> stop);

// Lets this process open as many files as it may ask for (its hard limit, ulimit -Hn), and
// says how many that are.
uint64_t RaiseFileLimit();

}  // namespace leeway

#endif  // LEEWAY_COMMON_PROCESS_H_

// How our processes are told to stop: SIGINT, SIGTERM, or the end of standard
// input when the program that started them has gone.
#ifndef LEEWAY_COMMON_PROCESS_H_
#define LEEWAY_COMMON_PROCESS_H_

#include <functional>

namespace leeway {

// Call first in main, before any thread starts, so that all threads inherit it.
void BlockTerminationSignals();

// Calls `stop` once, from a thread of its own (which lives as long as the
// process), at the first SIGINT or SIGTERM or, with `watch_stdin`, when standard
// input ends. A second signal exits at once.
void OnTermination(bool watch_stdin, std::function<void()> stop);

}  // namespace leeway

#endif  // LEEWAY_COMMON_PROCESS_H_

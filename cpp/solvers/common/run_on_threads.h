// SPDX-License-Identifier: Apache-2.0
#ifndef MEMC_RUN_ON_THREADS_H_
#define MEMC_RUN_ON_THREADS_H_

#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace memc {

// Runs `body` on this many threads, this one included, or on fewer if the system has no more. What
// one of them throws (the first, if several do) is thrown here once all have ended.
template <typename Body>
void RunOnThreads(const Body& body, int64_t threads) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto guarded = [&] {
    try {
      body();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(threads);
  try {
    for (int64_t t = 1; t < threads; ++t) helpers.emplace_back(guarded);
  } catch (const std::system_error&) {  // The threads there are do all the work.
  }
  guarded();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace memc

#endif  // MEMC_RUN_ON_THREADS_H_

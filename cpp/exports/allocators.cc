// SPDX-License-Identifier: Apache-2.0
// The simulated allocators' door for Python. Arrays are one-dimensional contiguous i64 tensors on
// the host.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "allocators/caching.h"
#include "allocators/coalescing.h"
#include "allocators/exact_size.h"
#include "allocators/simulate.h"
#include "exports/ffi_arrays.h"

namespace {

namespace ffi = tvm::ffi;

using memc::Int64s;
using memc::Translate;

struct Settings {
  const int64_t* numbers;
  int64_t count;
  double threshold;
  double fraction;
};

void RequireNumbers(const Settings& settings, int64_t count) {
  if (settings.count != count) {
    throw std::invalid_argument("settings have " + std::to_string(settings.count) +
                                " numbers, expected " + std::to_string(count));
  }
}

std::unique_ptr<memc::Allocator> MakeCaching(memc::Device device, const Settings& settings) {
  memc::CachingOptions options;
  RequireNumbers(settings, 6 + memc::CachingOptions::kIntervals);
  const int64_t* n = settings.numbers;
  options.expandable_segments = n[0] != 0;
  options.large_segment = n[1];
  options.max_split = n[2];
  options.max_non_split_rounding = n[3];
  options.device_total = n[4];
  options.events_complete = n[5] != 0;
  for (int64_t i = 0; i < memc::CachingOptions::kIntervals; ++i) options.divisions[i] = n[6 + i];
  options.garbage_collection_threshold = settings.threshold;
  options.memory_fraction = settings.fraction;
  return std::make_unique<memc::CachingAllocator>(std::move(device), options);
}

std::unique_ptr<memc::Allocator> MakeBfc(memc::Device device, const Settings& settings) {
  RequireNumbers(settings, 3);
  const int64_t* n = settings.numbers;
  const memc::BfcOptions options{n[0], n[1] != 0, n[2] != 0, settings.fraction};
  return std::make_unique<memc::BfcAllocator>(std::move(device), options);
}

std::unique_ptr<memc::Allocator> MakeCupy(memc::Device device, const Settings& settings) {
  RequireNumbers(settings, 1);
  return std::make_unique<memc::CupyAllocator>(std::move(device),
                                               memc::CupyOptions{settings.numbers[0]});
}

std::unique_ptr<memc::Allocator> MakeMxnet(memc::Device device, const Settings& settings) {
  RequireNumbers(settings, 5);
  const int64_t* n = settings.numbers;
  if (n[0] < 0 || n[0] > memc::MxnetOptions::kUnpooled) {
    throw std::invalid_argument("MXNet's pool " + std::to_string(n[0]) + " is unknown");
  }
  const memc::MxnetOptions options{static_cast<memc::MxnetOptions::Kind>(n[0]), n[1], n[2], n[3],
                                   n[4]};
  return std::make_unique<memc::MxnetAllocator>(std::move(device), options);
}

struct Maker {
  const char* name;
  std::unique_ptr<memc::Allocator> (*make)(memc::Device device, const Settings& settings);
};

constexpr Maker kMakers[] = {
    {"bfc", MakeBfc}, {"caching", MakeCaching}, {"cupy", MakeCupy}, {"mxnet", MakeMxnet}};

std::unique_ptr<memc::Allocator> Make(const std::string& name, memc::Device device,
                                      const Settings& settings) {
  for (const Maker& maker : kMakers) {
    if (name == maker.name) return maker.make(std::move(device), settings);
  }
  throw std::invalid_argument("no simulated allocator \"" + name + "\"");
}

// Null for an array of no elements.
int64_t* Optional(ffi::TensorView array, int64_t length, const char* what) {
  return array.size(0) == 0 ? nullptr : Int64s(array, length, what);
}

void Append(ffi::Array<int64_t>& numbers, const memc::Counter& counter) {
  numbers.push_back(counter.current);
  numbers.push_back(counter.peak);
}

// Of the request that failed, of the peaks: indices of events; then how many retries, current and
// peak value of each counter, and five numbers for each change of a segment.
ffi::Array<int64_t> Numbers(const memc::Simulation& result, const memc::Allocator& allocator) {
  const memc::Statistics& stats = allocator.stats;
  ffi::Array<int64_t> numbers{result.failed, result.peak_allocated_at, result.peak_reserved_at,
                              stats.retries};
  for (const memc::Counter* counter :
       {&stats.allocated, &stats.requested, &stats.reserved, &stats.active, &stats.inactive_split,
        &stats.segments, &stats.device}) {
    Append(numbers, *counter);
  }
  for (const memc::SegmentChange& change : allocator.segment_changes()) {
    for (const int64_t number :
         {change.event, change.kind, change.address, change.bytes, change.stream}) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// `known`: addresses of the first segments. `series` takes allocated and then reserved bytes after
// each event, `found` the addresses of blocks; either may be empty.
ffi::Array<int64_t> SimulateAllocator(ffi::String name, int64_t capacity, bool descending,
                                      ffi::TensorView settings, double threshold, double fraction,
                                      ffi::TensorView known, ffi::TensorView kinds,
                                      ffi::TensorView blocks, ffi::TensorView bytes,
                                      ffi::TensorView streams, ffi::TensorView pools,
                                      ffi::TensorView series, ffi::TensorView found,
                                      bool segments) {
  return Translate([&] {
    memc::Device device(capacity, descending);
    const int64_t* addresses = Int64s(known, -1, "segment addresses");
    device.UseAddresses({addresses, addresses + known.size(0)});
    const Settings given{Int64s(settings, -1, "settings"), settings.size(0), threshold, fraction};
    const auto allocator = Make(std::string(name), std::move(device), given);
    const int64_t n = kinds.size(0);
    const memc::EventColumns events{n,
                                    Int64s(kinds, n, "kinds"),
                                    Int64s(blocks, n, "blocks"),
                                    Int64s(bytes, n, "bytes"),
                                    Int64s(streams, n, "streams"),
                                    Int64s(pools, n, "pools")};
    memc::SimulationTrace trace;
    trace.allocated = Optional(series, 2 * n, "series");
    trace.reserved = trace.allocated == nullptr ? nullptr : trace.allocated + n;
    trace.addresses = Optional(found, n, "addresses");
    trace.segments = segments;
    return Numbers(memc::Simulate(*allocator, events, trace), *allocator);
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(memc_simulate_allocator, SimulateAllocator);

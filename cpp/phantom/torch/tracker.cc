// SPDX-License-Identifier: Apache-2.0
// Watches PyTorch's allocator in the process of the script: each event with the op, module and
// phase that it came from.
#ifndef NDEBUG
#define NDEBUG  // As PyTorch is built: a RecordFunction has one member more without it.
#endif
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#define MEMC_PHANTOM_EXPORT extern "C" __attribute__((visibility("default")))

// Of the phantom device, which is loaded before PyTorch.
extern "C" void memc_phantom_watch(int64_t (*read)(size_t), void (*write)(const void*),
                                   void (*plan)());
extern "C" void memc_phantom_clear(uintptr_t address, size_t bytes);
extern "C" void memc_phantom_watch_launches(void (*launch)());
extern "C" void memc_phantom_grow_local_memory();
extern "C" void memc_phantom_count_steps(int64_t ended);

namespace {

using c10::CachingDeviceAllocator::TraceEntry;

enum Phase : int64_t { kForward, kBackward, kOptimizer };

// What a tensor holds that an op reads or copies.
enum Numbers : int64_t { kUnknown, kFloating, kWhole };

constexpr int64_t kMark = 100, kFromHost = 3;  // An action of a row that marks an address.

// One row of the file of events; docs are in python/memc/estimation/phantom/trace.py.
struct Row {
  int64_t action, address, bytes, stream, pool, op, module, phase, step, call;
};

struct Frame {
  const at::RecordFunction* of;
  const char* name;
  Phase phase;
  int64_t module, call;
  Numbers numbers;
  int64_t elements;  // of what `nonzero` searches; else -1
};

using Read = std::tuple<int64_t, int64_t, int64_t>;  // op, bytes and Numbers

using ForwardOp = std::pair<uint64_t, int64_t>;  // thread and sequence number

struct State {
  std::mutex mutex;
  std::vector<Row> rows;
  std::vector<std::string> names;
  std::unordered_map<std::string, int64_t> number_of;
  std::map<ForwardOp, int64_t> modules;  // of ops that a backward pass may come back to
  std::map<Read, int64_t> reads;         // how often
  std::set<int> devices;                 // on which there are blocks
  std::atomic<int64_t> module{-1}, step{0}, calls{0}, backwards{0};
  double nonzero = 0;      // share of elements that `nonzero` finds
  std::thread::id script;  // the thread that runs the script
};

State& The() {
  static auto* const state = new State;  // Kept until the process ends: threads outlive statics.
  return *state;
}

thread_local std::vector<Frame> frames;
// Of a thread that works off a backward pass: what it does between two nodes, such as summing a
// gradient that was broadcast, is no op of either.
thread_local Phase idle = kForward;

bool StartsWith(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

int64_t NumberOf(State& state, const std::string& name) {
  const auto [found, is_new] = state.number_of.emplace(name, state.names.size());
  if (is_new) state.names.push_back(name);
  return found->second;
}

// The innermost op that does more than ask for memory.
const char* Op() {
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (!StartsWith(frame->name, "aten::empty") && !StartsWith(frame->name, "aten::resize_")) {
      return frame->name;
    }
  }
  return frames.empty() ? "" : frames.back().name;
}

// The phase of what runs outside of all ops that are known: autograd adds gradients up by itself.
Phase Outermost(const State& state) { return state.backwards > 0 ? kBackward : idle; }

// Of an op that may read the device.
Numbers NumbersOf(const at::RecordFunction& function) {
  const char* name = function.name();
  if (!StartsWith(name, "aten::")) return kUnknown;
  name += 6;
  const bool copy = std::strcmp(name, "copy_") == 0;
  const char* const reading[] = {"_local_scalar_dense", "item", "is_nonzero", "to", "_to_copy"};
  bool known = copy;
  for (const char* each : reading) known = known || std::strcmp(name, each) == 0;
  const auto inputs = function.inputs();
  const size_t at = copy ? 1 : 0;
  if (!known || inputs.size() <= at || !inputs[at].isTensor()) return kUnknown;
  const at::Tensor& tensor = inputs[at].toTensor();
  if (!tensor.defined()) return kUnknown;
  return c10::isIntegralType(tensor.scalar_type(), true) ? kWhole : kFloating;
}

int64_t Searched(const at::RecordFunction& function) {
  if (std::strcmp(function.name(), "aten::nonzero") != 0) return -1;
  const auto inputs = function.inputs();
  return !inputs.empty() && inputs[0].isTensor() ? inputs[0].toTensor().numel() : -1;
}

std::unique_ptr<at::ObserverContext> Enter(const at::RecordFunction& function) {
  State& state = The();
  Frame frame{&function, function.name(),     Outermost(state),  state.module,
              0,         NumbersOf(function), Searched(function)};
  if (frames.empty()) {
    frame.call = ++state.calls;
    if (frame.phase == kBackward) frame.module = -1;
  } else {
    frame.call = frames.back().call;
    frame.phase = frames.back().phase;
    if (frame.phase == kBackward) frame.module = frames.back().module;
  }
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    frame.phase = kBackward;
    if (std::this_thread::get_id() != state.script) idle = kBackward;
    if (function.seqNr() >= 0) {
      const std::lock_guard<std::mutex> lock(state.mutex);
      const auto found = state.modules.find({function.forwardThreadId(), function.seqNr()});
      frame.module = found == state.modules.end() ? -1 : found->second;
    }
  } else if (StartsWith(frame.name, "Optimizer.step")) {
    frame.phase = kOptimizer;
  } else if (frame.phase == kForward && function.seqNr() >= 0 && frame.module >= 0) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.modules[{at::RecordFunction::currentThreadId(), function.seqNr()}] = frame.module;
  }
  frames.push_back(frame);
  return nullptr;
}

void Leave(const at::RecordFunction& function, at::ObserverContext*) {
  for (size_t at = frames.size(); at-- > 0;) {
    if (frames[at].of == &function) {
      frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
  }
}

void Add(const TraceEntry& entry) {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  Row row{};
  row.action = entry.action_;
  row.address = static_cast<int64_t>(entry.addr_);
  row.bytes = static_cast<int64_t>(entry.size_);
  row.stream = static_cast<int64_t>(reinterpret_cast<uintptr_t>(entry.stream_));
  const auto [first, second] = entry.mempool_;
  row.pool = first == 0 && second == 0 ? 0 : static_cast<int64_t>(first * 1000003 + second);
  row.op = NumberOf(state, Op());
  row.module = frames.empty() ? state.module.load() : frames.back().module;
  row.phase = frames.empty() ? Outermost(state) : frames.back().phase;
  row.step = state.step;
  row.call = frames.empty() ? 0 : frames.back().call;
  state.rows.push_back(row);
  if (entry.action_ == TraceEntry::ALLOC) {
    state.devices.insert(entry.device_);
    memc_phantom_clear(entry.addr_, entry.size_);
  }
}

// The count that `nonzero` reads; -1 for what another op reads.
int64_t Found(const State& state) {
  if (frames.empty() || frames.back().elements < 0) return -1;
  return std::llround(state.nonzero * static_cast<double>(frames.back().elements));
}

int64_t AddRead(size_t bytes) {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  std::string path;  // From the outermost op inwards.
  Numbers numbers = kUnknown;
  for (const Frame& frame : frames) {
    path += (path.empty() ? "" : " > ") + std::string(frame.name);
    if (frame.numbers != kUnknown) numbers = frame.numbers;
  }
  ++state.reads[{NumberOf(state, path), static_cast<int64_t>(bytes), numbers}];
  return Found(state);
}

void AddWrite(const void* to) {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  Row row{};
  row.action = kMark + kFromHost;
  row.address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to));
  state.rows.push_back(row);
}

// A plan for tensor cores is told like a read of no bytes.
void AddPlan() { AddRead(0); }

// Kernels that draw random numbers or fill memory use no local memory; the first of another kind
// was seen to make the driver provide more of it.
void Launched() {
  static constexpr const char* kFilling[] = {
      "aten::rand",  "aten::normal", "aten::uniform", "aten::bernoulli", "aten::exponential",
      "aten::fill_", "aten::zero",   "aten::ones",    "aten::full",      "aten::new_"};
  for (const Frame& frame : frames) {
    for (const char* name : kFilling) {
      if (StartsWith(frame.name, name)) return;
    }
  }
  memc_phantom_watch_launches(nullptr);
  memc_phantom_grow_local_memory();
}

}  // namespace

MEMC_PHANTOM_EXPORT void memc_phantom_assume_nonzero(double share) { The().nonzero = share; }

// Begins to watch; devices must be initialized.
MEMC_PHANTOM_EXPORT void memc_phantom_track() {
  The().script = std::this_thread::get_id();
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(Add);
  at::addGlobalCallback(at::RecordFunctionCallback(Enter, Leave)
                            .needsInputs(true)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::USER_SCOPE}));
  memc_phantom_watch(AddRead, AddWrite, AddPlan);
  memc_phantom_watch_launches(Launched);
}

MEMC_PHANTOM_EXPORT void memc_phantom_set_module(int64_t module) { The().module = module; }
MEMC_PHANTOM_EXPORT void memc_phantom_set_step(int64_t step) {
  The().step = step;
  memc_phantom_count_steps(step);
}

// A backward pass begins (1) or ends (-1).
MEMC_PHANTOM_EXPORT void memc_phantom_backward(int64_t change) { The().backwards += change; }

// How many devices there are blocks on.
MEMC_PHANTOM_EXPORT size_t memc_phantom_devices() {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  return state.devices.size();
}

// Marks addresses that hold weights, gradients, ...: a row that is no event of the allocator.
MEMC_PHANTOM_EXPORT void memc_phantom_mark(const int64_t* addresses, int64_t count, int64_t what) {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  for (int64_t i = 0; i < count; ++i) {
    Row row{};
    row.action = kMark + what;
    row.address = addresses[i];
    state.rows.push_back(row);
  }
}

// Writes the rows as they are in memory, and names and reads as lines. Returns whether it could.
MEMC_PHANTOM_EXPORT int memc_phantom_write(const char* rows_path, const char* names_path) {
  State& state = The();
  const std::lock_guard<std::mutex> lock(state.mutex);
  FILE* rows = std::fopen(rows_path, "wb");
  if (rows == nullptr) return 0;
  const size_t written = std::fwrite(state.rows.data(), sizeof(Row), state.rows.size(), rows);
  FILE* names = std::fopen(names_path, "w");
  if (names != nullptr) {
    for (const std::string& name : state.names) std::fprintf(names, "op %s\n", name.c_str());
    for (const auto& [what, count] : state.reads) {
      const auto [op, bytes, numbers] = what;
      std::fprintf(names, "read %lld %lld %lld %lld\n", static_cast<long long>(op),
                   static_cast<long long>(bytes), static_cast<long long>(count),
                   static_cast<long long>(numbers));
    }
  }
  const bool ok = std::fclose(rows) == 0 && written == state.rows.size() && names != nullptr;
  return names != nullptr && std::fclose(names) == 0 && ok ? 1 : 0;
}

// SPDX-License-Identifier: Apache-2.0
// Planned-memory replay for Python. An engine is the address of a memc_replay_engine, which may be
// a framework's; a rehearsal is an application on a device of host memory, with an engine of its
// own. Arrays are one-dimensional contiguous i64 tensors on the host.
#include "replay/replay.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "exports/ffi_arrays.h"
#include "replay/rehearsal/rehearsal.h"

namespace {

namespace ffi = tvm::ffi;

using memc::Int64s;
using memc::Translate;
using memc::replay::Rehearsal;

constexpr int64_t kRecordNumbers = sizeof(memc_replay_record) / sizeof(int64_t);

memc_replay_engine* EngineOf(int64_t address) {
  return reinterpret_cast<memc_replay_engine*>(address);
}

Rehearsal* RehearsalOf(int64_t address) { return reinterpret_cast<Rehearsal*>(address); }

int64_t Checked(int64_t result) {
  if (result < 0) throw std::invalid_argument(memc_replay_error());
  return result;
}

void AddPlan(int64_t engine, int64_t key, ffi::TensorView bytes, ffi::TensorView streams,
             ffi::TensorView threads, ffi::TensorView offsets, ffi::TensorView flags,
             int64_t arena_bytes, int64_t arena_from) {
  Translate([&] {
    const int64_t n = bytes.size(0);
    const memc_replay_plan plan{n,
                                Int64s(bytes, n, "bytes"),
                                Int64s(streams, n, "stream classes"),
                                Int64s(threads, n, "thread classes"),
                                Int64s(offsets, n, "offsets"),
                                Int64s(flags, n, "flags"),
                                arena_bytes,
                                arena_from};
    return Checked(memc_replay_add_plan(EngineOf(engine), key, &plan));
  });
}

int64_t DropPlan(int64_t engine, int64_t key) {
  return Translate([&] { return Checked(memc_replay_drop_plan(EngineOf(engine), key)); });
}

ffi::Array<int64_t> Escaping(int64_t engine, int64_t key) {
  std::vector<int64_t> rows(
      static_cast<size_t>(memc_replay_escaping(EngineOf(engine), key, nullptr, 0)));
  memc_replay_escaping(EngineOf(engine), key, rows.data(), static_cast<int64_t>(rows.size()));
  return {rows.begin(), rows.end()};
}

// How many records the step has, its key, and the clock when it began; the records themselves go
// into `records` as far as it has room. Nothing if there is no such step.
ffi::Array<int64_t> ReadLog(int64_t engine, int64_t age, ffi::TensorView records) {
  return Translate([&]() -> ffi::Array<int64_t> {
    int64_t* const numbers = Int64s(records, -1, "records");
    int64_t key = 0;
    int64_t begin = 0;
    const int64_t count = memc_replay_read_log(EngineOf(engine), static_cast<int>(age),
                                               reinterpret_cast<memc_replay_record*>(numbers),
                                               records.size(0) / kRecordNumbers, &key, &begin);
    if (count < 0) return {};
    return {count, key, begin};
  });
}

// The fields of memc_replay_stats in their sequence.
ffi::Array<int64_t> Stats(int64_t engine) {
  memc_replay_stats stats;
  memc_replay_get_stats(EngineOf(engine), &stats);
  const int64_t* const numbers = reinterpret_cast<const int64_t*>(&stats);
  return {numbers, numbers + sizeof(stats) / sizeof(int64_t)};
}

ffi::String Warning(int64_t engine) {
  std::string text(static_cast<size_t>(memc_replay_warning(EngineOf(engine), nullptr, 0)) + 1, 0);
  memc_replay_warning(EngineOf(engine), text.data(), static_cast<int64_t>(text.size()));
  text.pop_back();
  return text;
}

// Address, bytes and stream of each block.
ffi::Array<int64_t> LiveBlocks(int64_t engine) {
  std::vector<memc_replay_live> blocks(
      static_cast<size_t>(memc_replay_live_blocks(EngineOf(engine), nullptr, 0)));
  const int64_t room = static_cast<int64_t>(blocks.size());
  const int64_t count = memc_replay_live_blocks(EngineOf(engine), blocks.data(), room);
  ffi::Array<int64_t> numbers;
  for (int64_t i = 0; i < std::min(room, count); ++i) {
    const memc_replay_live& block = blocks[static_cast<size_t>(i)];
    numbers.push_back(reinterpret_cast<int64_t>(block.address));
    numbers.push_back(block.bytes);
    numbers.push_back(static_cast<int64_t>(block.stream));
  }
  return numbers;
}

Rehearsal::Events EventsOf(ffi::TensorView events) {
  const int64_t n = events.size(0) / 5;
  const int64_t* numbers = Int64s(events, 5 * n, "events");
  return {n, numbers, numbers + n, numbers + 2 * n, numbers + 3 * n, numbers + 4 * n};
}

int64_t Open(int64_t capacity, bool fills) {
  return reinterpret_cast<int64_t>(new Rehearsal(capacity, fills));
}

// Five columns one after another: kinds, blocks, bytes, streams, threads.
void Play(int64_t rehearsal, ffi::TensorView events, ffi::TensorView results) {
  Translate([&] {
    const Rehearsal::Events columns = EventsOf(events);
    RehearsalOf(rehearsal)->Play(columns, Int64s(results, columns.count, "results"));
    return 0;
  });
}

double Time(int64_t rehearsal, ffi::TensorView events, int64_t key, int64_t repeats) {
  return Translate([&] { return RehearsalOf(rehearsal)->Time(EventsOf(events), key, repeats); });
}

int64_t RehearsedEngine(int64_t rehearsal) {
  return reinterpret_cast<int64_t>(RehearsalOf(rehearsal)->engine());
}

// Overlaps and races, bytes of arenas, and events that are there.
ffi::Array<int64_t> DeviceNumbers(int64_t rehearsal) {
  const memc::replay::HostDevice& device = RehearsalOf(rehearsal)->device();
  return {device.wrong(), device.arena_bytes(), device.events()};
}

ffi::String FirstWrong(int64_t rehearsal) { return RehearsalOf(rehearsal)->device().first_wrong(); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("memc.replay.begin_step",
           [](int64_t engine, int64_t key) {
             return static_cast<int64_t>(memc_replay_begin_step(EngineOf(engine), key));
           })
      .def("memc.replay.end_step",
           [](int64_t engine, bool completed) {
             return static_cast<int64_t>(memc_replay_end_step(EngineOf(engine), completed));
           })
      .def("memc.replay.interrupt", [](int64_t engine) { memc_replay_interrupt(EngineOf(engine)); })
      .def("memc.replay.resume", [](int64_t engine) { memc_replay_resume(EngineOf(engine)); })
      .def("memc.replay.record_steps",
           [](int64_t engine, bool on) { memc_replay_record_steps(EngineOf(engine), on); })
      .def("memc.replay.add_plan", AddPlan)
      .def("memc.replay.drop_plan", DropPlan)
      .def("memc.replay.escaping", Escaping)
      .def("memc.replay.read_log", ReadLog)
      .def("memc.replay.stats", Stats)
      .def("memc.replay.warning", Warning)
      .def("memc.replay.live_blocks", LiveBlocks)
      .def("memc.replay.release_arena",
           [](int64_t engine) { return memc_replay_release_arena(EngineOf(engine)); })
      .def("memc.replay.open", Open)
      .def("memc.replay.close", [](int64_t rehearsal) { delete RehearsalOf(rehearsal); })
      .def("memc.replay.play", Play)
      .def("memc.replay.time", Time)
      .def("memc.replay.rehearsed_engine", RehearsedEngine)
      .def("memc.replay.device_numbers", DeviceNumbers)
      .def("memc.replay.first_wrong", FirstWrong)
      .def("memc.replay.fail_events",
           [](int64_t rehearsal, bool fail) { RehearsalOf(rehearsal)->device().FailEvents(fail); })
      .def("memc.replay.set_capacity", [](int64_t rehearsal, int64_t bytes) {
        RehearsalOf(rehearsal)->device().SetCapacity(bytes);
      });
}

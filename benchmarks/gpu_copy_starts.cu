// SPDX-License-Identifier: Apache-2.0
// What starting a copy beside kernels, and waiting for it, takes these kernels: one mechanism after
// another, each beside the same kernels without copies. benchmarks/gpu_copy_starts.py builds and
// runs it:
//
//     gpu_copy_starts MECHANISM KERNELS COPIES BYTES STEPS
//
// prints a line of JSON. A wait of a kernel gives up after two seconds; one of a stream's memory
// operation does not, and whoever runs this has to end it.
#include "gpu_copy_starts.cuh"

namespace {

class Bench {
 public:
  Bench(const Mechanism& how, int kernels, int copies, size_t bytes, int loops, bool looking)
      : how_(how), kernels_(kernels), bytes_(bytes), loops_(loops), looking_(looking) {
    const int apart = std::max(1, kernels / (copies + 4));
    for (int n = 0; n < copies; ++n) {
      copies_.push_back({0, n * apart + 1, std::min(kernels - 1, n * apart + 1 + 2 * apart), n});
      copies_.push_back({1, n * apart + 1 + apart / 2,
                         std::min(kernels - 1, n * apart + 1 + apart / 2 + 2 * apart), n});
    }
    for (cudaStream_t* s : {&main_, &lanes_[0], &lanes_[1]})
      RT(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking));
    RT(cudaMalloc(&traffic_, kTraffic));
    RT(cudaMemset(traffic_, 0, kTraffic));
    for (int lane = 0; lane < 2; ++lane) {
      RT(cudaMalloc(&device_[lane], kSlots * bytes));
      RT(cudaHostAlloc(&host_[lane], kSlots * bytes, cudaHostAllocPortable));
      std::memset(host_[lane], 0, kSlots * bytes);
    }
    RT(cudaMalloc(&flags_, FlagBytes()));
    RT(cudaMalloc(&late_, sizeof(unsigned)));
    RT(cudaMemset(late_, 0, sizeof(unsigned)));
    RT(cudaHostAlloc(&seen_, (copies + 1) * sizeof(unsigned), cudaHostAllocPortable));
    RT(cudaMalloc(&looked_, (copies + 1) * sizeof(unsigned)));
    for (size_t n = 0; n < 2 * copies_.size() + 8; ++n) {
      cudaEvent_t event;
      RT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      events_.push_back(event);
    }
    graph_ = Captured(main_, [this] { Program(); });
    if (how_.lanes == Lanes::kGraph) {
      for (int lane = 0; lane < 2; ++lane) {
        lane_graphs_[lane] = Captured(lanes_[lane], [this, lane] { Lane(lane); });
      }
    }
  }

  // One step, enqueued on the main stream.
  void Step() {
    const bool apart = how_.lanes == Lanes::kStream || how_.lanes == Lanes::kGraph;
    if (!apart) {
      RT(cudaGraphLaunch(graph_, main_));
      return;
    }
    RT(cudaMemsetAsync(flags_, 0, FlagBytes(), main_));
    RT(cudaEventRecord(Special(0), main_));
    for (cudaStream_t lane : lanes_) RT(cudaStreamWaitEvent(lane, Special(0)));
    RT(cudaGraphLaunch(graph_, main_));
    for (int lane = 0; lane < 2; ++lane) {
      if (how_.lanes == Lanes::kGraph) RT(cudaGraphLaunch(lane_graphs_[lane], lanes_[lane]));
      if (how_.lanes == Lanes::kStream) Lane(lane);
      RT(cudaEventRecord(Special(1 + lane), lanes_[lane]));
      RT(cudaStreamWaitEvent(main_, Special(1 + lane)));
    }
  }

  double Timed() {
    cudaEvent_t a, b;
    RT(cudaEventCreate(&a));
    RT(cudaEventCreate(&b));
    RT(cudaStreamSynchronize(main_));
    RT(cudaEventRecord(a, main_));
    Step();
    RT(cudaEventRecord(b, main_));
    RT(cudaEventSynchronize(b));
    RT(cudaStreamSynchronize(main_));
    float ms = 0;
    RT(cudaEventElapsedTime(&ms, a, b));
    RT(cudaEventDestroy(a));
    RT(cudaEventDestroy(b));
    return ms;
  }

  // Bytes that came to where they should not have been yet, or not in time, of one step.
  int Wrong() {
    if (how_.lanes == Lanes::kNone || how_.wait == Wait::kNone) return 0;
    static unsigned round = 100;
    ++round;
    for (int slot = 0; slot < kSlots; ++slot) *HostWord(1, slot) = round + slot;
    for (int slot = 0; slot < kSlots; ++slot) *HostWord(0, slot) = 0;
    RT(cudaMemset(looked_, 0, copies_.size() / 2 * sizeof(unsigned)));
    RT(cudaMemset(device_[1], 0, kSlots * bytes_));
    RT(cudaDeviceSynchronize());
    Step();
    RT(cudaStreamSynchronize(main_));
    const int each = int(copies_.size() / 2);
    RT(cudaMemcpy(seen_, looked_, each * sizeof(unsigned), cudaMemcpyDeviceToHost));
    int wrong = 0;
    for (int n = 0; n < each; ++n) wrong += seen_[n] != round + n % kSlots;
    // A slot holds what the last kernel that stamped it wrote before its copy started.
    for (int n = std::max(0, each - kSlots); n < each && how_.start != Start::kNone; ++n) {
      wrong += *HostWord(0, n % kSlots) != unsigned(n + 1);
    }
    unsigned late = 0;
    RT(cudaMemcpy(&late, late_, sizeof(late), cudaMemcpyDeviceToHost));
    return wrong + (late != 0 ? 100000 : 0);
  }

 private:
  size_t FlagBytes() const { return (4 * copies_.size() + 16) * sizeof(unsigned); }
  unsigned* StartFlag(const Copy& c) const { return flags_ + 2 * (2 * c.number + c.lane); }
  unsigned* DoneFlag(const Copy& c) const { return StartFlag(c) + 1; }
  cudaEvent_t Special(int n) const { return events_[2 * copies_.size() + n]; }
  cudaEvent_t Fork(const Copy& c) const { return events_[2 * (2 * c.number + c.lane)]; }
  cudaEvent_t Over(const Copy& c) const { return events_[2 * (2 * c.number + c.lane) + 1]; }
  char* Device(const Copy& c) const { return device_[c.lane] + (c.number % kSlots) * bytes_; }
  char* Host(const Copy& c) const { return host_[c.lane] + (c.number % kSlots) * bytes_; }
  unsigned* HostWord(int lane, int slot) const {  // The last one of a slot.
    return reinterpret_cast<unsigned*>(host_[lane] + (slot + 1) * bytes_) - 1;
  }
  unsigned* DeviceWord(const Copy& c) const {
    return reinterpret_cast<unsigned*>(Device(c) + bytes_) - 1;
  }

  template <typename Enqueue>
  cudaGraphExec_t Captured(cudaStream_t stream, Enqueue enqueue) {
    cudaGraph_t graph;
    cudaGraphExec_t made;
    RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    enqueue();
    RT(cudaStreamEndCapture(stream, &graph));
    RT(cudaGraphInstantiate(&made, graph, 0));
    return made;
  }

  // A wait for a flag, or a write to it, by the stream itself; in a capture a node of its own.
  void MemoryOperation(cudaStream_t stream, unsigned* flag, bool wait) {
    CUstreamBatchMemOpParams op;
    std::memset(&op, 0, sizeof(op));
    if (wait) {
      op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      op.waitValue.address = CUdeviceptr(flag);
      op.waitValue.value = 1;
      op.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    } else {
      op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      op.writeValue.address = CUdeviceptr(flag);
      op.writeValue.value = 1;
    }
    cudaStreamCaptureStatus status;
    RT(cudaStreamIsCapturing(stream, &status));
    if (status == cudaStreamCaptureStatusNone) {
      DRV(FOUND(cuStreamBatchMemOp)(stream, 1, &op, 0));
      return;
    }
    CUstreamCaptureStatus captured;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode* before;
    const CUgraphEdgeData* edges;
    size_t count;
    DRV(FOUND(cuStreamGetCaptureInfo)(stream, &captured, &id, &graph, &before, &edges, &count));
    CUDA_BATCH_MEM_OP_NODE_PARAMS node;
    std::memset(&node, 0, sizeof(node));
    DRV(FOUND(cuCtxGetCurrent)(&node.ctx));
    node.count = 1;
    node.paramArray = &op;
    CUgraphNode made;
    DRV(FOUND(cuGraphAddBatchMemOpNode)(&made, graph, before, count, &node));
    DRV(FOUND(cuStreamUpdateCaptureDependencies)(stream, &made, nullptr, 1,
                                                 CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  }

  void Move(const Copy& c) {
    if (c.lane == 0)
      RT(cudaMemcpyAsync(Host(c), Device(c), bytes_, cudaMemcpyDeviceToHost, lanes_[0]));
    if (c.lane == 1)
      RT(cudaMemcpyAsync(Device(c), Host(c), bytes_, cudaMemcpyHostToDevice, lanes_[1]));
  }

  // All copies of a lane, ordered by flags.
  void Lane(int lane) {
    for (const Copy& c : copies_) {
      if (c.lane != lane) continue;
      if (how_.start == Start::kRecord) {
        RT(cudaStreamWaitEvent(lanes_[lane], Fork(c)));
      } else if (how_.start != Start::kNone) {
        MemoryOperation(lanes_[lane], StartFlag(c), true);
      }
      Move(c);
      if (how_.wait == Wait::kEvent) RT(cudaEventRecord(Over(c), lanes_[lane]));
      if (how_.wait == Wait::kKernel || how_.wait == Wait::kMemory)
        MemoryOperation(lanes_[lane], DoneFlag(c), false);
    }
  }

  void OnStart(const Copy& c) {
    if (how_.start == Start::kEarly) {
      SignalEarly<<<1, 1, 0, main_>>>(StartFlag(c));
      early_ = true;
    }
    if (how_.lanes == Lanes::kForked) {
      RT(cudaEventRecord(Fork(c), main_));
      RT(cudaStreamWaitEvent(lanes_[c.lane], Fork(c)));
      Move(c);
      RT(cudaEventRecord(Over(c), lanes_[c.lane]));
      if (how_.wait == Wait::kKernel) MemoryOperation(lanes_[c.lane], DoneFlag(c), false);
    }
    if (how_.start == Start::kMemory) MemoryOperation(main_, StartFlag(c), false);
    if (how_.start == Start::kKernel) Signal<<<1, 1, 0, main_>>>(StartFlag(c));
    if (how_.start == Start::kRecord)
      RT(cudaEventRecordWithFlags(Fork(c), main_, cudaEventRecordExternal));
  }

  void OnWait(const Copy& c) {
    // Nothing sets the flags of copies that are not: those of the starts stand for them.
    unsigned* flag = how_.lanes == Lanes::kNone ? StartFlag(c) : DoneFlag(c);
    if (how_.wait == Wait::kEvent) RT(cudaStreamWaitEvent(main_, Over(c)));
    if (how_.wait == Wait::kMemory) MemoryOperation(main_, flag, true);
    if (how_.wait == Wait::kKernel) Await<<<1, 1, 0, main_>>>(flag, late_);
  }

  void Launch(int n) {
    unsigned* stamp = nullptr;
    unsigned value = 0;
    for (const Copy& c : copies_) {
      if (c.lane == 0 && c.start == n) {
        stamp = DeviceWord(c);
        value = c.number + 1;
      }
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(264);
    config.blockDim = dim3(256);
    config.stream = main_;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = early_ ? 1 : 0;
    early_ = false;
    RT(cudaLaunchKernelEx(&config, Work, static_cast<float4*>(traffic_), loops_, float(n), stamp,
                          value));
  }

  void Program() {
    const bool within = how_.lanes == Lanes::kBranch;
    if (how_.lanes == Lanes::kBranch || how_.lanes == Lanes::kForked || how_.lanes == Lanes::kNone)
      RT(cudaMemsetAsync(flags_, 0, FlagBytes(), main_));
    if (within) {
      RT(cudaEventRecord(Special(0), main_));
      for (int lane = 0; lane < 2; ++lane) {
        RT(cudaStreamWaitEvent(lanes_[lane], Special(0)));
        Lane(lane);
      }
    }
    for (int n = 0; n < kernels_; ++n) {
      for (const Copy& c : copies_) {
        if (c.done != n) continue;
        OnWait(c);
        if (c.lane == 1 && how_.lanes != Lanes::kNone && looking_)
          Look<<<1, 1, 0, main_>>>(DeviceWord(c), looked_ + c.number);
      }
      Launch(n);
      for (const Copy& c : copies_) {
        if (c.start == n) OnStart(c);
      }
    }
    if (within || how_.lanes == Lanes::kForked) {
      for (int lane = 0; lane < 2; ++lane) {
        RT(cudaEventRecord(Special(1 + lane), lanes_[lane]));
        RT(cudaStreamWaitEvent(main_, Special(1 + lane)));
      }
    }
  }

  Mechanism how_;
  int kernels_;
  size_t bytes_;
  int loops_;
  bool looking_;  // Also look at what came in, which takes kernels of its own.
  std::vector<Copy> copies_;
  cudaStream_t main_, lanes_[2];
  void* traffic_;
  char* device_[2];
  char* host_[2];
  unsigned* flags_ = nullptr;
  unsigned* late_;
  unsigned* looked_;
  unsigned* seen_;
  bool early_ = false;
  std::vector<cudaEvent_t> events_;
  cudaGraphExec_t graph_;
  cudaGraphExec_t lane_graphs_[2];
};

double Median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  mechanism = argv[1];
  const int kernels = std::atoi(argv[2]), copies = std::atoi(argv[3]), steps = std::atoi(argv[5]);
  const size_t bytes = std::max(16l, std::atol(argv[4]) / 16 * 16);
  const Mechanism* how = nullptr;
  for (const Mechanism& item : kMechanisms) {
    if (mechanism == item.name) how = &item;
  }
  if (how == nullptr) return 2;
  const int loops =
      9000;  // About 30 microseconds of additions with multiplications that wait for each other.
  Bench plain(kMechanisms[0], kernels, copies, bytes, loops, false);
  const int wrong = Bench(*how, kernels, copies, bytes, loops, true).Wrong();
  Bench bench(*how, kernels, copies, bytes, loops, false);
  std::vector<double> without, with;
  for (int n = 0; n < steps + 3; ++n) {
    const double a = plain.Timed(), b = bench.Timed();
    if (n < 3) continue;
    without.push_back(a);
    with.push_back(b);
  }
  const double a = Median(without), b = Median(with);
  std::printf(
      "{\"mechanism\": \"%s\", \"kernels\": %d, \"copies\": %d, \"bytes\": %zu, \"plain_ms\": "
      "%.4f, \"ms\": %.4f, "
      "\"us_each\": %.3f, \"percent\": %.3f, \"wrong\": %d}\n",
      mechanism.c_str(), kernels, 2 * copies, bytes, a, b, 1e3 * (b - a) / (2 * copies),
      100 * (b / a - 1), wrong);
  return 0;
}

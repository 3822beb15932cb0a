// SPDX-License-Identifier: Apache-2.0
#include "convolutions.h"

#include <map>
#include <mutex>
#include <vector>

#include "real_cudnn.h"
#include "stream_k.h"

namespace phantom {

namespace {

using Descriptor = cudnnBackendDescriptor_t;

struct Known {
  std::map<cudnnBackendAttributeName_t, std::vector<int64_t>> numbers;
  std::map<cudnnBackendAttributeName_t, std::vector<Descriptor>> parts;
  Precision precision = Precision::kSingle;
};

struct Followed {
  std::mutex mutex;
  std::map<Descriptor, Known> known;
  std::map<Descriptor, Convolution> of;   // graphs, heuristics, configurations
  std::map<Descriptor, int64_t> missing;  // plans
};

Followed& All() {
  static auto* const all = new Followed;
  return *all;
}

// Names of what an operation has.
struct Names {
  Direction direction;
  cudnnBackendAttributeName_t image, filter, output;
};

constexpr Names kOperations[] = {
    {Direction::kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {Direction::kData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {Direction::kWeights, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

std::vector<int64_t> Sizes(Followed& all, const Known& operation, cudnnBackendAttributeName_t name,
                           Precision* precision) {
  const auto found = operation.parts.find(name);
  if (found == operation.parts.end()) return {};
  const Known& tensor = all.known[found->second.front()];
  *precision = tensor.precision;
  const auto sizes = tensor.numbers.find(CUDNN_ATTR_TENSOR_DIMENSIONS);
  return sizes == tensor.numbers.end() ? std::vector<int64_t>{} : sizes->second;
}

int64_t EngineOf(Descriptor config) {
  auto destroy = MEMC_PHANTOM_REAL(cudnnBackendDestroyDescriptor);
  auto get = MEMC_PHANTOM_REAL(cudnnBackendGetAttribute);
  Descriptor engine = nullptr;
  int64_t count = 0, index = -1;
  MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
  get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
  get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &index);
  destroy(engine);
  return index;
}

Knobs KnobsOf(Descriptor config) {
  auto get = MEMC_PHANTOM_REAL(cudnnBackendGetAttribute);
  Descriptor choices[CUDNN_KNOB_TYPE_COUNTS] = {};
  for (Descriptor& choice : choices) {
    MEMC_PHANTOM_REAL(cudnnBackendCreateDescriptor)
    (CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice);
  }
  int64_t count = 0, one = 0;
  get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      CUDNN_KNOB_TYPE_COUNTS, &count, choices);
  Knobs found;
  for (int64_t at = 0; at < count; ++at) {
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t value = 0;
    get(choices[at], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &type);
    get(choices[at], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &value);
    found[type] = value;
  }
  for (Descriptor choice : choices) MEMC_PHANTOM_REAL(cudnnBackendDestroyDescriptor)(choice);
  return found;
}

// The cuDNN whose workspaces were measured.
bool IsMeasured() {
  static const bool is = MEMC_PHANTOM_REAL(cudnnGetVersion)() / 100 == 919;
  return is;
}

}  // namespace

void ForgetDescriptor(Descriptor descriptor) {
  Followed& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.known.erase(descriptor);
  all.of.erase(descriptor);
  all.missing.erase(descriptor);
}

void FollowSet(Descriptor descriptor, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Followed& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (name == CUDNN_ATTR_TENSOR_DIMENSIONS) {
    const auto* const sizes = static_cast<const int64_t*>(values);
    all.known[descriptor].numbers[name].assign(sizes, sizes + count);
  } else if (name == CUDNN_ATTR_TENSOR_DATA_TYPE) {
    const auto kind = *static_cast<const cudnnDataType_t*>(values);
    all.known[descriptor].precision = kind == CUDNN_DATA_HALF       ? Precision::kHalf
                                      : kind == CUDNN_DATA_BFLOAT16 ? Precision::kBfloat16
                                                                    : Precision::kSingle;
  } else if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const parts = static_cast<const Descriptor*>(values);
    all.known[descriptor].parts[name].assign(parts, parts + count);
    const auto found = count > 0 ? all.of.find(parts[0]) : all.of.end();
    if (found == all.of.end()) return;
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) all.of[descriptor] = found->second;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG && IsMeasured()) {
      all.missing[descriptor] = StreamKBytes(found->second, EngineOf(parts[0]), KnobsOf(parts[0]));
    }
  }
}

void FollowGraph(Descriptor graph) {
  Followed& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const std::vector<Descriptor> operations = all.known[graph].parts[CUDNN_ATTR_OPERATIONGRAPH_OPS];
  if (operations.size() != 1) return;
  const Known operation = all.known[operations[0]];
  for (const Names& names : kOperations) {
    Convolution made;
    made.direction = names.direction;
    made.image = Sizes(all, operation, names.image, &made.precision);
    made.filter = Sizes(all, operation, names.filter, &made.precision);
    made.output = Sizes(all, operation, names.output, &made.precision);
    if (made.image.size() != 4 || made.filter.size() != 4 || made.output.size() != 4) continue;
    if (made.image[1] == made.filter[1]) all.of[graph] = made;  // Else it is in groups.
  }
}

void FollowConfigs(Descriptor heuristics, int64_t count, const void* configs) {
  Followed& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.of.find(heuristics);
  if (found == all.of.end()) return;
  const Convolution convolution = found->second;
  for (int64_t at = 0; at < count; ++at) {
    all.of[static_cast<const Descriptor*>(configs)[at]] = convolution;
  }
}

int64_t MissingBytes(Descriptor plan) {
  Followed& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.missing.find(plan);
  return found == all.missing.end() ? 0 : found->second;
}

}  // namespace phantom

// SPDX-License-Identifier: Apache-2.0
// Recurrent networks of cuDNN, which it plans with a handle alone: the layout of weights as it is
// documented, and sizes of workspace and reserve as they were seen on devices.
#include <cudnn.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "device.h"
#include "export.h"
#include "real_cudnn.h"

namespace phantom {

namespace {

size_t Bytes(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

struct Network {
  cudnnRNNMode_t cell = CUDNN_LSTM;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  size_t inputs = 0, hidden = 0, projected = 0, layers = 0, directions = 1;
  bool bias = true;
  bool persistent = false;  // the algorithm that keeps weights on the chip

  size_t Gates() const { return cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1; }
  size_t Outputs() const { return projected > 0 ? projected : hidden; }
  // Elements of a pseudo-layer's input; the first `directions` ones read the network's input.
  size_t Inputs(size_t pseudo_layer) const {
    return pseudo_layer < directions ? inputs : Outputs() * directions;
  }
  size_t MatrixElements(size_t pseudo_layer) const {
    const size_t projection = projected > 0 ? projected * hidden : 0;
    return Gates() * hidden * (Inputs(pseudo_layer) + Outputs()) + projection;
  }
  size_t MatrixBytes() const {
    size_t elements = 0;
    for (size_t at = 0; at < layers * directions; ++at) elements += MatrixElements(at);
    return elements * Bytes(type);
  }
  size_t BiasBytes() const {
    return bias ? layers * directions * 2 * Gates() * hidden * Bytes(type) : 0;
  }
};

struct Sequence {
  size_t steps = 0, batch = 0;
};

struct Seen {
  std::mutex mutex;
  std::map<cudnnRNNDescriptor_t, Network> networks;
  std::map<cudnnRNNDataDescriptor_t, Sequence> sequences;
};

Seen& All() {
  static auto* const seen = new Seen;
  return *seen;
}

Network Find(cudnnRNNDescriptor_t descriptor) {
  Seen& seen = All();
  const std::lock_guard<std::mutex> lock(seen.mutex);
  return seen.networks[descriptor];
}

// Sizes as cuDNN 9.19 gave them on an H200 for 40,000 shapes, and within 512 bytes for 92,000 more
// in one direction; a unit is the hidden state of a batch. The standard algorithm alone, which is
// what PyTorch asks for.
size_t Aligned(size_t bytes) { return (bytes + 31) / 32 * 32; }

size_t Unit(const Network& network, const Sequence& sequence) {
  return sequence.batch * network.hidden * Bytes(network.type);
}

// What each cell keeps of every step, and outputs between layers.
size_t ReserveBytes(const Network& network, const Sequence& sequence) {
  const size_t kept = network.cell == CUDNN_LSTM ? 5 : network.cell == CUDNN_GRU ? 6 : 1;
  const size_t units = network.directions * sequence.steps * (network.layers * (kept + 1) - 1);
  return Aligned(units * Unit(network, sequence)) + 256;
}

// A copy of the matrices, 8 MiB for each layer and direction, and two numbers for each sequence.
size_t CommonBytes(const Network& network, const Sequence& sequence) {
  constexpr size_t kForProducts = size_t{8} << 20;
  return Aligned(network.MatrixBytes()) + network.layers * network.directions * kForProducts + 256 +
         Aligned(8 * sequence.batch);
}

// The gates (in one direction of 256 steps at most), outputs of a layer, its states, and the input.
size_t ForwardBytes(const Network& network, const Sequence& sequence) {
  constexpr size_t kSteps = 256;
  const size_t unit = Unit(network, sequence), steps = sequence.steps;
  const bool both = network.directions == 2;
  const size_t gates =
      network.directions * network.Gates() * (both ? steps : std::min(steps, kSteps));
  const size_t states = (both ? 2 : 0) + (network.cell == CUDNN_LSTM  ? 10
                                          : network.cell == CUDNN_GRU ? 5
                                                                      : 3);
  const size_t parts = network.layers * network.directions;
  const size_t kept = network.cell == CUDNN_LSTM
                          ? Aligned(4 * parts * unit) + parts * Aligned(4 * unit) +
                                Aligned((states - 8) * parts * unit)
                          : Aligned(states * parts * unit);
  const size_t fewer = network.cell == CUDNN_LSTM ? 2 : network.cell == CUDNN_GRU ? 1 : 0;
  const size_t persistent =
      network.persistent ? (4 * network.Gates() * steps - fewer * network.layers) * unit : 0;
  return CommonBytes(network, sequence) + persistent + Aligned(gates * unit) +
         Aligned((both ? 6 : 1) * steps * unit) + kept +
         Aligned(steps * sequence.batch * network.inputs * Bytes(network.type));
}

// Steps between the first and the last layer of one direction, which work side by side. Batches of
// 3 to 15, 17 to 19 and 65 to 127, and 101 to 127 steps, were not seen: they are taken as the next
// ones that take more.
size_t StepsApart(size_t layers, const Sequence& sequence) {
  const size_t batch = sequence.batch;
  size_t of_layer = batch == 1 ? 32 : batch < 16 ? 16 : batch < 20 ? 8 : batch < 128 ? 4 : 2;
  if (sequence.steps > 100) of_layer = std::max<size_t>(of_layer, 8);
  return layers == 1 ? sequence.steps
                     : std::min(sequence.steps, std::max<size_t>(of_layer, 8) + of_layer * layers);
}

// Gradients of gates, outputs and inputs.
size_t BackwardBytes(const Network& network, const Sequence& sequence) {
  const bool both = network.directions == 2, lstm = network.cell == CUDNN_LSTM;
  const size_t unit = Unit(network, sequence), steps = sequence.steps, layers = network.layers;
  const size_t input = sequence.batch * network.inputs * Bytes(network.type);
  const size_t wider = std::max(input, unit) - unit;
  size_t of_steps = network.directions * network.Gates(), others = 0, states = 0;
  if (both) {
    of_steps += (lstm ? 4 : network.cell == CUDNN_GRU ? 6 : 10) - (layers == 1 ? 2 : 0);
    others = 4 * steps * wider;
    states = layers * (lstm ? 26 : 14);
  } else {
    of_steps += (lstm ? 0 : network.cell == CUDNN_GRU ? 1 : 3) - 1;
    others = StepsApart(layers, sequence) * unit + steps * wider;
    states = layers * (lstm ? 11 : 5);
  }
  return CommonBytes(network, sequence) + (of_steps * steps + states) * unit + others +
         2 * steps * input;
}

void Describe(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, size_t rows,
              size_t columns) {
  const int sizes[] = {1, static_cast<int>(rows), static_cast<int>(columns)};
  const int strides[] = {sizes[1] * sizes[2], sizes[2], 1};
  MEMC_PHANTOM_REAL(cudnnSetTensorNdDescriptor)(descriptor, type, 3, sizes, strides);
}

}  // namespace

}  // namespace phantom

using namespace phantom;

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t cell,
    cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
    cudnnDataType_t type, cudnnDataType_t math, cudnnMathType_t math_type, int32_t inputs,
    int32_t hidden, int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout,
    uint32_t flags) {
  {
    Seen& seen = All();
    const std::lock_guard<std::mutex> lock(seen.mutex);
    Network& network = seen.networks[descriptor];
    network.cell = cell;
    network.type = type;
    network.inputs = inputs;
    network.hidden = hidden;
    network.projected = projected == hidden ? 0 : projected;
    network.layers = layers;
    network.directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
    network.bias = bias != CUDNN_RNN_NO_BIAS;
    network.persistent = algorithm == CUDNN_RNN_ALGO_PERSIST_STATIC && type != CUDNN_DATA_BFLOAT16;
  }
  return MEMC_PHANTOM_REAL(cudnnSetRNNDescriptor_v8)(descriptor, algorithm, cell, bias, direction,
                                                     input, type, math, math_type, inputs, hidden,
                                                     projected, layers, dropout, flags);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor,
                                                            cudnnDataType_t type,
                                                            cudnnRNNDataLayout_t layout, int steps,
                                                            int batch, int vector,
                                                            const int lengths[], void* fill) {
  {
    Seen& seen = All();
    const std::lock_guard<std::mutex> lock(seen.mutex);
    seen.sequences[descriptor] = {static_cast<size_t>(steps), static_cast<size_t>(batch)};
  }
  return MEMC_PHANTOM_REAL(cudnnSetRNNDataDescriptor)(descriptor, type, layout, steps, batch,
                                                      vector, lengths, fill);
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t,
                                                             cudnnRNNDescriptor_t descriptor,
                                                             size_t* bytes) {
  const Network network = Find(descriptor);
  *bytes = network.MatrixBytes() + network.BiasBytes();
  return CUDNN_STATUS_SUCCESS;
}

// All matrices come first, layer by layer: those of the input, then the recurrent ones, then the
// projection; after them all biases in the same order. A caller asks for either, or both.
MEMC_PHANTOM_EXPORT cudnnStatus_t
cudnnGetRNNWeightParams(cudnnHandle_t, cudnnRNNDescriptor_t descriptor, int32_t pseudo_layer,
                        size_t, const void* weights, int32_t which, cudnnTensorDescriptor_t matrix,
                        void** matrix_at, cudnnTensorDescriptor_t bias, void** bias_at) {
  const Network network = Find(descriptor);
  const size_t gates = network.Gates(), hidden = network.hidden, size = Bytes(network.type);
  const size_t layer = pseudo_layer, linear = which;
  const size_t inputs = network.Inputs(layer), outputs = network.Outputs();
  const bool recurrent = linear >= gates, projection = linear >= 2 * gates;
  char* const base = static_cast<char*>(const_cast<void*>(weights));
  if (matrix_at != nullptr) *matrix_at = nullptr;
  if (bias_at != nullptr) *bias_at = nullptr;
  if (projection && network.projected == 0) return CUDNN_STATUS_SUCCESS;
  if (matrix_at != nullptr) {
    size_t at = 0;
    for (size_t before = 0; before < layer; ++before) at += network.MatrixElements(before);
    at += std::min(linear, gates) * hidden * inputs;
    if (recurrent) at += std::min(linear - gates, gates) * hidden * outputs;
    *matrix_at = base + at * size;
    if (projection) {
      Describe(matrix, network.type, outputs, hidden);
    } else {
      Describe(matrix, network.type, hidden, recurrent ? outputs : inputs);
    }
  }
  if (bias_at != nullptr && network.bias && !projection) {
    *bias_at = base + network.MatrixBytes() + (layer * 2 * gates + linear) * hidden * size;
    Describe(bias, network.type, hidden, 1);
  }
  return CUDNN_STATUS_SUCCESS;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t,
                                                            cudnnRNNDescriptor_t descriptor,
                                                            cudnnForwardMode_t mode,
                                                            cudnnRNNDataDescriptor_t data,
                                                            size_t* workspace, size_t* reserve) {
  const Network network = Find(descriptor);
  Sequence sequence;
  {
    Seen& seen = All();
    const std::lock_guard<std::mutex> lock(seen.mutex);
    sequence = seen.sequences[data];
  }
  const bool training = mode == CUDNN_FWD_MODE_TRAINING;
  if (reserve != nullptr) *reserve = training ? ReserveBytes(network, sequence) : 0;
  if (workspace != nullptr) {
    *workspace = ForwardBytes(network, sequence);
    if (training) *workspace = std::max(*workspace, BackwardBytes(network, sequence));
  }
  return CUDNN_STATUS_SUCCESS;
}

MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t, size_t* bytes) {
  // A generator's state for each thread that a device can have at work.
  *bytes = static_cast<size_t>(Number("multiProcessorCount") *
                               Number("maxThreadsPerMultiProcessor") * 24);
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t, cudnnHandle_t,
                                                            float, void*, size_t,
                                                            unsigned long long) {
  return CUDNN_STATUS_SUCCESS;
}
MEMC_PHANTOM_EXPORT cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t,
                                                                cudnnHandle_t, float, void*, size_t,
                                                                unsigned long long) {
  return CUDNN_STATUS_SUCCESS;
}

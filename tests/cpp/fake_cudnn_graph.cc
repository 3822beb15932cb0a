// SPDX-License-Identifier: Apache-2.0
// Graphs of the cuDNN of fake_cuda.h: a plan computes op by op, as each is documented.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "fake_cuda.h"

namespace {

using namespace fake;

using Extents = std::array<int64_t, 4>;

struct Descriptor {
  int kind = 0;
  std::map<int, std::vector<char>> attributes;

  template <typename T>
  std::vector<T> All(int name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <typename T>
  T One(int name) const {
    return All<T>(name).at(0);
  }
  const Descriptor* To(int name) const { return One<const Descriptor*>(name); }
  bool Has(int name) const { return attributes.count(name) > 0; }
};

size_t SizeOfType(int type) {
  switch (type) {
    case 2:
      return 1;  // Booleans.
    case 0:
    case 3:
    case 6:
    case 15:
      return 8;  // Handles, int64, pointers, descriptors.
    default:
      return 4;
  }
}

// A tensor's numbers, row by row.
struct Numbers {
  Extents shape;
  std::vector<float> values;

  // With axes of one element repeated, and heads that are shared.
  float At(Extents at, const Extents& of) const {
    size_t place = 0;
    for (size_t axis = 0; axis < 4; ++axis) {
      const int64_t i = shape[axis] == of[axis] ? at[axis] : at[axis] * shape[axis] / of[axis];
      place = place * static_cast<size_t>(shape[axis]) + static_cast<size_t>(i);
    }
    return values[place];
  }
};

Extents ShapeOf(const Descriptor* tensor) {
  Extents shape{};
  const auto values = tensor->All<int64_t>(902);
  std::copy(values.begin(), values.end(), shape.begin());
  return shape;
}

template <typename Visit>
void Each(const Extents& shape, const Visit& visit) {
  Extents at{};
  for (at[0] = 0; at[0] < shape[0]; ++at[0])
    for (at[1] = 0; at[1] < shape[1]; ++at[1])
      for (at[2] = 0; at[2] < shape[2]; ++at[2])
        for (at[3] = 0; at[3] < shape[3]; ++at[3]) visit(at);
}

size_t Place(const Extents& at, const std::vector<int64_t>& strides) {
  int64_t place = 0;
  for (size_t axis = 0; axis < 4; ++axis) place += at[axis] * strides[axis];
  return static_cast<size_t>(place);
}

class Run {
 public:
  explicit Run(const Descriptor* pack) {
    const auto numbers = pack->All<int64_t>(1000);
    const auto pointers = pack->All<void*>(1001);
    for (size_t i = 0; i < numbers.size(); ++i) data_[numbers[i]] = pointers[i];
  }

  void Do(const Descriptor* op) {
    if (op->kind == 19) return Multiply(op);
    if (op->kind == 22) return Reduce(op);
    Point(op);
  }

 private:
  Numbers Read(const Descriptor* tensor) {
    const auto number = tensor->One<int64_t>(906);
    if (const auto between = between_.find(number); between != between_.end())
      return between->second;
    Numbers found{ShapeOf(tensor), {}};
    const void* from = data_.at(number);
    const auto strides = tensor->All<int64_t>(903);
    Each(found.shape, [&](const Extents& at) {
      found.values.push_back(Get(from, tensor->One<int>(901), Place(at, strides)));
    });
    return found;
  }

  void Write(const Descriptor* tensor, Numbers numbers) {
    const int type = tensor->One<int>(901);
    if (tensor->Has(907)) {
      if (type == 2 || type == 9) {
        uint16_t bits = 0;
        for (float& value : numbers.values) {
          Set(&bits, type, 0, value);
          value = Get(&bits, type, 0);
        }
      }
      between_[tensor->One<int64_t>(906)] = std::move(numbers);
      return;
    }
    void* to = data_.at(tensor->One<int64_t>(906));
    const auto strides = tensor->All<int64_t>(903);
    size_t i = 0;
    Each(numbers.shape,
         [&](const Extents& at) { Set(to, type, Place(at, strides), numbers.values[i++]); });
  }

  void Multiply(const Descriptor* op) {
    const Numbers a = Read(op->To(1520)), b = Read(op->To(1521));
    Numbers c{ShapeOf(op->To(1522)), {}};
    Each(c.shape, [&](const Extents& at) {
      double sum = 0;
      for (int64_t k = 0; k < a.shape[3]; ++k) {
        const Extents of_a{c.shape[0], c.shape[1], a.shape[2], a.shape[3]};
        const Extents of_b{c.shape[0], c.shape[1], b.shape[2], b.shape[3]};
        sum += a.At({at[0], at[1], at[2], k}, of_a) * b.At({at[0], at[1], k, at[3]}, of_b);
      }
      c.values.push_back(static_cast<float>(sum));
    });
    Write(op->To(1522), c);
  }

  void Reduce(const Descriptor* op) {
    const Numbers x = Read(op->To(1610));
    const bool most = op->To(1612)->One<int>(1600) == 3;
    Numbers y{ShapeOf(op->To(1611)), {}};
    Each(y.shape, [&](const Extents& at) {
      float found = most ? -std::numeric_limits<float>::infinity() : 0;
      for (int64_t i = 0; i < x.shape[3]; ++i) {
        const float value = x.At({at[0], at[1], at[2], i}, x.shape);
        found = most ? std::fmax(found, value) : found + value;
      }
      y.values.push_back(found);
    });
    Write(op->To(1611), y);
  }

  void Point(const Descriptor* op) {
    const int mode = op->To(750)->One<int>(0);
    const Numbers x = Read(op->To(751));
    const Numbers other = op->Has(752) ? Read(op->To(752)) : Numbers{};
    const Numbers where = op->Has(758) ? Read(op->To(758)) : Numbers{};
    Numbers y{ShapeOf(op->To(753)), {}};
    Each(y.shape, [&](const Extents& at) {
      const float a = x.At(at, y.shape);
      const float b = op->Has(752) ? other.At(at, y.shape) : 0;
      float found = NAN;
      switch (mode) {
        case 0:
          found = a + b;
          break;
        case 1:
          found = a * b;
          break;
        case 6:
          found = a / b;
          break;
        case 9:
          found = a - b;
          break;
        case 13:
          found = std::exp(a);
          break;
        case 15:
          found = std::log(a);
          break;
        case 303:
          found = a >= b ? 1.0F : 0.0F;
          break;
        case 501:
          found = static_cast<float>(at[op->To(750)->One<int64_t>(9)]);
          break;
        case 601:
          found = where.At(at, y.shape) != 0 ? a : b;
          break;
      }
      y.values.push_back(found);
    });
    Write(op->To(753), y);
  }

  std::map<int64_t, void*> data_;
  std::map<int64_t, Numbers> between_;
};

}  // namespace

extern "C" {

int fake_graph_runs = 0;

int cudnnBackendCreateDescriptor(int kind, void** to) {
  const int status = Make<Descriptor>("cudnnBackendCreateDescriptor", to);
  if (status == 0) As<Descriptor>(*to).kind = kind;
  return status;
}

int cudnnBackendDestroyDescriptor(void* descriptor) { return End<Descriptor>(descriptor); }

int cudnnBackendSetAttribute(void* to, int name, int type, int64_t count, const void* values) {
  const auto* from = static_cast<const char*>(values);
  const auto bytes = static_cast<size_t>(count) * SizeOfType(type);
  As<Descriptor>(to).attributes[name].assign(from, from + bytes);
  return 0;
}

// There is one configuration, for every graph.
int cudnnBackendGetAttribute(void* of, int name, int, int64_t most, int64_t* count, void* values) {
  const auto& descriptor = As<Descriptor>(of);
  *count = 1;
  if (most == 0) return 0;
  if (name == 402) {
    const int64_t bytes = 256;
    std::memcpy(values, &bytes, sizeof(bytes));
  } else {
    void* configuration = *static_cast<void**>(values);
    As<Descriptor>(configuration).attributes[301] = descriptor.attributes.at(201);
  }
  return 0;
}

int cudnnBackendFinalize(void* descriptor) {
  const bool is_plan = As<Descriptor>(descriptor).kind == 5;
  return is_plan && Fails("cudnnBackendFinalize") ? kFails : 0;
}

int cudnnBackendExecute(void*, void* plan, void* pack) {
  if (Fails("cudnnBackendExecute")) return kFails;
  if (As<Descriptor>(pack).One<void*>(1003) == nullptr) return kFails;
  ++fake_graph_runs;
  Run run(&As<Descriptor>(pack));
  const auto ops = As<Descriptor>(plan).To(401)->To(301)->All<const Descriptor*>(801);
  for (const Descriptor* op : ops) run.Do(op);
  return 0;
}

}  // extern "C"

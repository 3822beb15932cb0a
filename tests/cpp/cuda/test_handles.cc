// SPDX-License-Identifier: Apache-2.0
// Objects of the CUDA libraries cannot be taken for one another: this test passes if it compiles.
#include <type_traits>

#include "check.h"
#include "cuda/cuda_handles.h"

namespace {

using namespace memc::cuda;

template <typename Object, typename Function>
constexpr bool kTakes = std::is_invocable_v<Function, Object*>;

static_assert(kTakes<Event, decltype(Driver::destroy_event)>);
static_assert(!kTakes<StreamObject, decltype(Driver::destroy_event)>);
static_assert(!kTakes<CapturedGraph, decltype(Driver::destroy_event)>);
static_assert(!kTakes<void, decltype(Driver::destroy_event)>);
static_assert(kTakes<CapturedGraph, decltype(Driver::destroy_graph)>);
static_assert(!kTakes<ExecutableGraph, decltype(Driver::destroy_graph)>);
static_assert(!kTakes<CapturedGraph, decltype(Driver::destroy_executable)>);
static_assert(kTakes<StreamObject, decltype(Driver::synchronize)>);
static_assert(!kTakes<Event, decltype(Driver::synchronize)>);
static_assert(!kTakes<CudnnFilter, decltype(Cudnn::destroy_tensor)>);
static_assert(!kTakes<CudnnTensor, decltype(Cudnn::destroy_filter)>);
static_assert(!kTakes<LtProduct, decltype(CublasLt::destroy_layout)>);
static_assert(!std::is_invocable_v<decltype(Cudnn::set_stream), LtHandle*, Stream>);
static_assert(!std::is_convertible_v<Kernel*, Image*>);

// One owner each, and owners of different objects do not mix.
static_assert(!std::is_copy_constructible_v<Owned<Event>>);
static_assert(std::is_nothrow_move_constructible_v<Owned<Event>>);
static_assert(!std::is_constructible_v<Owned<Event>, Owned<CapturedGraph>>);
static_assert(!std::is_copy_constructible_v<DeviceBytes>);
static_assert(sizeof(Owned<Event>) == sizeof(Event*));

TEST(AnOwnerOfNothingDestroysNothing) { CHECK(Owned<CudnnTensor>() == nullptr); }

}  // namespace

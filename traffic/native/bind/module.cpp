// The Python module traffic._native; each file of this folder binds one layer.
#include <nanobind/nanobind.h>

namespace etloop {
void bind_card_end(nanobind::module_& module);
void bind_congestion(nanobind::module_& module);
void bind_endless_answer(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_fair_shares(nanobind::module_& module);
void bind_flow(nanobind::module_& module);
void bind_mrc(nanobind::module_& module);
void bind_uet(nanobind::module_& module);
void bind_qp(nanobind::module_& module);
void bind_schedule(nanobind::module_& module);
void bind_soft_switch(nanobind::module_& module);
void bind_twin(nanobind::module_& module);
void bind_wire(nanobind::module_& module);
}  // namespace etloop

NB_MODULE(_native, module) {
  module.doc() = "The native engine of ETLoop.";
  etloop::bind_wire(module);
  etloop::bind_mrc(module);
  etloop::bind_uet(module);
  etloop::bind_qp(module);
  etloop::bind_schedule(module);
  etloop::bind_congestion(module);
  etloop::bind_engine(module);
  etloop::bind_twin(module);
  etloop::bind_fair_shares(module);
  etloop::bind_flow(module);
  etloop::bind_soft_switch(module);
  etloop::bind_card_end(module);
  etloop::bind_endless_answer(module);
}

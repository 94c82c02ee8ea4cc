//! The extension module of the Python package `folioswap`: an engine with its heap, NumPy's
//! allocator (NEP 49), buffers, and copies for forked children. The public interface is in
//! `folioswap/__init__.py`.
#![warn(missing_docs)]

mod buffer;
mod engine;
mod error;
mod fork;
mod numpy;
mod transfer;

use pyo3::prelude::*;

#[pymodule]
fn _folioswap(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<engine::Engine>()?;
    module.add_class::<buffer::Buffer>()?;
    module.add_function(wrap_pyfunction!(engine::advise, module)?)?;
    module.add_function(wrap_pyfunction!(engine::resident_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(engine::is_managed, module)?)?;
    module.add_function(wrap_pyfunction!(engine::address, module)?)?;
    module.add_function(wrap_pyfunction!(engine::is_under_run, module)?)?;
    module.add_function(wrap_pyfunction!(engine::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::transfer, module)?)?;
    module.add_function(wrap_pyfunction!(numpy::set_handler, module)?)?;
    module.add_function(wrap_pyfunction!(numpy::get_handler, module)?)?;
    module.add_function(wrap_pyfunction!(fork::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork_in_child, module)?)?;
    module.add("LEAST_LIMIT", folioswap::LEAST_LIMIT)?;
    module.add("MANAGED_BYTES", numpy::MANAGED_BYTES)?;
    Ok(())
}

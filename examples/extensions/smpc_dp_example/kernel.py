"""Two kernels of one number: whether it differs by 2 at most, and whether by a tenth of its range at most.

`near` is for whole numbers from 0 to 9; `within_a_tenth` is made of any field.
"""

from __future__ import annotations

from smpc_dp.capabilities.pairs.kernels import Field, Kernel, KernelFactory, table_kernel

near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) <= 2), Field(0, 9), low=0, high=1)


class WithinATenth(KernelFactory):
    """Makes the kernel on a field, whose grid has 256 points at most."""

    def make(self, *fields: Field) -> Kernel:
        """Return the kernel through a table of all its values."""
        (field,) = fields
        most = (field.high - field.low) / 10
        return table_kernel(self.name, lambda x, y: float(abs(x[0] - y[0]) <= most), field, low=0, high=1)


within_a_tenth = WithinATenth("within_a_tenth", ("x",))

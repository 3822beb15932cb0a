# SPDX-License-Identifier: Apache-2.0
"""What must hold of IR and of plans: verifiers, and the checker of plans. They share no code with what makes plans."""

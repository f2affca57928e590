"""What stands beside the DRAM's banks in the HBM stack: a unit per bank group, with the reduction's ALU (T3 section
4.3)."""

from .alu import LATENCY, Alu
from .bank_group import BankGroupUnit, NearBankParameters

__all__ = ["LATENCY", "Alu", "BankGroupUnit", "NearBankParameters"]

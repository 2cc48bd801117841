"""A plan together with what it was made from."""

from __future__ import annotations

from dataclasses import dataclass

from cora.analysis.demand import check_profile
from cora.analysis.profile import Profile
from cora.errors import Kind, fail
from cora.ir.hashing import program_hash
from cora.ir.nodes import Program
from cora.models import registry
from cora.models.target import Target
from cora.partition.planner import digest_of, model_digest
from cora.plan.document import Plan


@dataclass(frozen=True)
class Subject:
    """A plan with the very program, profile and target that it is for."""

    plan: Plan
    program: Program
    profile: Profile
    target: Target


def subject_of(plan: Plan, program: Program, profile: Profile) -> Subject:
    """Bring a plan together with its inputs; the target is the registered one whose model the plan was made with.

    Raises:
        CoraError: `Kind.PLAN_INPUTS` when one of them is not the one the plan was made from, `Kind.PROFILE_MISMATCH`
            when the profile is not even of this program, `Kind.UNKNOWN_NIC`.
    """
    if program_hash(program) != plan.program_hash:
        raise fail(Kind.PLAN_INPUTS, f"the plan was made from another program or another version of it: its hash is "
                                     f"{plan.program_hash[:12]}, that of '{program.name}' is "
                                     f"{program_hash(program)[:12]}",
                   hint="give the same file with the same --set values, or make the plan again")
    check_profile(program, profile)
    if digest_of(profile) != plan.profile_digest:
        raise fail(Kind.PLAN_INPUTS, "the plan was made for another profile of this program",
                   hint="give the profile that `cora plan` was given, or make the plan again")
    return Subject(plan, program, profile, target_of(plan))


def target_of(plan: Plan) -> Target:
    """The target of a plan: the card whose figures the plan was made with, and the host model it used.

    Raises:
        CoraError: `Kind.UNKNOWN_NIC`, `Kind.PLAN_INPUTS` when no card has these figures any more, and what is wrong
            with the instance file or the calibration it was made with.
    """
    target = registry.get(plan.target, plan.card.instance, plan.card.reserved, plan.host_model.kind)
    if model_digest(target.model) == plan.model_digest:
        return target
    theirs = f" and the host as measured {plan.host_model.made}" if plan.host_model.kind == "measured" else ""
    raise fail(Kind.PLAN_INPUTS, f"the plan was made with other figures of {plan.target} (model version "
                                 f"{plan.model_version}{theirs}) than this version of cora has "
                                 f"({target.model.version})",
               hint="make the plan again")

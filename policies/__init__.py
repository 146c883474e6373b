"""The policy document a platform team writes, and its rules as pure functions.

| question | answer |
|---|---|
| the document | :class:`policies.document.PolicyDocument` |
| read one, with line and hint on errors | :func:`policies.loading.parse_policy` |
| write one, print a preset | :func:`policies.writing.to_yaml`, :func:`policies.writing.preset` |
| may this money be held | :func:`policies.budget.refusal` |
| may this team use this class | :func:`policies.priority.refusal` |
| who goes first | :func:`policies.priority.effective_rank`, ``overdue_at`` |
| what is an hour's delay worth | :func:`policies.priority.value_micros_per_hour` |
| whose turn is it | :func:`policies.fairshare.share`, ``demand_gpus``, ``decayed`` |
| may this user submit for the team | :func:`policies.teams.refusal` |
| may this job go to this offer | :func:`policies.burst.refusal`, ``may_leave``, ``closed`` |
| is bursting worth it | :func:`policies.burst.gain_refusal`, ``margin_micros`` |
| is spot good enough | :func:`policies.spot.refusal` |
| is it in time | :func:`policies.spot.deadline_refusal` |
| may this run be stopped for that job | :func:`policies.preemption.refusal`, ``reclaims`` |
| may it use these devices at home | :func:`policies.placement.refusal`, ``prefers_efficient`` |
| may it come home | :func:`policies.return_home.refusal`, ``margin_micros`` |
| is this node taken out of use | :func:`policies.quarantine.reason` |
| may this machine be ended | :func:`policies.retire.refusal`, ``due_at``, ``idle_after_s`` |

Every ``refusal`` returns the reason for a "no", or None. What depends on the document alone is
checked when it is read (:mod:`policies.consistency`).
"""

output "pool" {
  description = "The pool document, for hybrid pools apply -f."
  value = yamlencode(merge(
    {
      kind     = "burst"
      name     = var.name
      provider = var.provider_name
      region   = data.aws_region.here.name
      zones    = [for zone in sort(keys(var.subnets)) : { name = zone, subnet = var.subnets[zone] }]
      template = merge(
        {
          id      = aws_launch_template.node.id
          version = tostring(aws_launch_template.node.latest_version)
        },
        var.efa ? { security_groups = [aws_security_group.nodes.id] } : {},
      )
      gangs         = { placement_group = var.placement_groups, efa = var.efa }
      machine_types = var.machine_types
      markets       = var.markets
      ceilings      = { machines = var.max_machines, usd_per_hour = var.max_usd_per_hour }
      disk          = var.disk_gib
      tags          = { for key, value in var.tags : lower(key) => value }
    },
    var.install == "" ? {} : { boot = { install = var.install } },
  ))
}

output "server_policy_arn" {
  description = "Attach this to the role or user whose credentials the server has."
  value       = aws_iam_policy.server.arn
}

output "node_role_arn" {
  description = "The role of the pool's machines."
  value       = aws_iam_role.node.arn
}

output "notice_queue" {
  description = "The queue that EC2's notices come through, for options.notice_queue of the server's provider; null without one."
  value       = one(aws_sqs_queue.notices[*].url)
}

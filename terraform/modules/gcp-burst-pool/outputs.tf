output "pool" {
  description = "The pool document, for hybrid pools apply -f."
  value = yamlencode(merge(
    {
      kind          = "burst"
      name          = var.name
      provider      = var.provider_name
      region        = var.region
      zones         = [for zone in sort(var.zones) : { name = zone }]
      template      = { id = google_compute_instance_template.node.id }
      machine_types = var.machine_types
      markets       = var.markets
      ceilings      = { machines = var.max_machines, usd_per_hour = var.max_usd_per_hour }
      disk          = var.disk_gib
      notice        = 30
      tags          = { for key, value in var.labels : lower(key) => value }
    },
    var.install == "" ? {} : { boot = { install = var.install } },
  ))
}

output "server_service_account" {
  description = "Run the server as this service account, or let its own impersonate it."
  value       = google_service_account.server.email
}

output "node_service_account" {
  description = "The service account of the pool's machines."
  value       = google_service_account.node.email
}

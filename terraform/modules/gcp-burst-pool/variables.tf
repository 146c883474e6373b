variable "name" {
  description = "Name of the pool: lower case letters, digits and dashes, beginning with a letter."
  type        = string

  validation {
    condition     = can(regex("^[a-z]([a-z0-9-]{0,14}[a-z0-9])?$", var.name))
    error_message = "The name has at most 16 lower case letters, digits and dashes, begins with a letter and ends with a letter or digit."
  }
}

variable "provider_name" {
  description = "What the server's settings call this project and region (providers[].name)."
  type        = string
  default     = "gcp"
}

variable "project" {
  description = "The project that machines run in."
  type        = string
}

variable "region" {
  description = "The region that machines run in."
  type        = string
}

variable "zones" {
  description = "Zones of the region that machines may go into."
  type        = list(string)

  validation {
    condition     = length(var.zones) > 0
    error_message = "At least one zone is needed."
  }
}

variable "subnetwork" {
  description = "Self link of the region's subnetwork; machines must reach the server from it (Cloud NAT)."
  type        = string
}

variable "network" {
  description = "Self link of the network that the subnetwork is in, for the gang's firewall rule."
  type        = string
}

variable "image" {
  description = "Image with cloud-init, the NVIDIA driver, Python 3.11 or newer and, unless install is set, hybrid in /opt/hybrid."
  type        = string
}

variable "install" {
  description = "Package that machines install at boot, such as hybrid==0.1.0; empty when the image has it."
  type        = string
  default     = ""
}

variable "machine_types" {
  description = "Machine types the pool may use; n1-standard-8+nvidia-tesla-t4 attaches a GPU."
  type        = list(string)

  validation {
    condition     = length(var.machine_types) > 0
    error_message = "At least one machine type is needed."
  }
}

variable "markets" {
  description = "spot, on_demand, or both."
  type        = list(string)
  default     = ["spot"]

  validation {
    condition     = length(var.markets) > 0 && alltrue([for m in var.markets : contains(["spot", "on_demand"], m)])
    error_message = "Markets are spot and on_demand."
  }
}

variable "max_machines" {
  description = "The most machines the pool may hold at a time."
  type        = number
}

variable "max_usd_per_hour" {
  description = "The most all machines of the pool together may cost an hour, at their price ceilings."
  type        = number
}

variable "disk_gib" {
  description = "Size of each machine's boot disk."
  type        = number
  default     = 100
}

variable "checkpoint_bucket" {
  description = "Cloud Storage bucket of checkpoints and artifacts that machines may read and write; empty for none."
  type        = string
  default     = ""
}

variable "labels" {
  description = "Labels of everything made here, and of the machines."
  type        = map(string)
  default     = {}
}

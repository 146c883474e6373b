variable "project" {
  description = "The project that machines run in."
  type        = string
}

variable "image" {
  description = "Image of the machines."
  type        = string
}

provider "google" {
  project = var.project
  region  = "us-central1"
}

data "google_compute_network" "default" {
  name = "default"
}

data "google_compute_subnetwork" "default" {
  name   = "default"
  region = "us-central1"
}

module "spot_l4" {
  source = "../../modules/gcp-burst-pool"

  name             = "spot-l4"
  project          = var.project
  region           = "us-central1"
  zones            = ["us-central1-a", "us-central1-b"]
  network          = data.google_compute_network.default.self_link
  subnetwork       = data.google_compute_subnetwork.default.self_link
  image            = var.image
  install          = "hybrid[gcp]==0.1.0"
  machine_types    = ["g2-standard-8", "n1-standard-8+nvidia-tesla-t4"]
  markets          = ["spot", "on_demand"]
  max_machines     = 4
  max_usd_per_hour = 12
  labels           = { team = "research" }
}

output "pool" {
  value = module.spot_l4.pool
}
